/* Asks an env plugin as NCCL does, without NCCL:
 *
 *   client LIBRARY TIMES THREADS NAME[=VALUE]...
 *
 * It sets the variables that have a value here, loads the library, prepares it once, and asks for each
 * variable that many times in each thread and in a child process. It writes a line NAME=VALUE for each variable, NAME for one that is not set,
 * what the plugin logged, and the nanoseconds that the preparation and an answer took. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef void (*logger)(int, unsigned long, const char *, int, const char *, ...);

struct plugin {
    const char *name;
    int (*init)(uint8_t, uint8_t, uint8_t, const char *, logger);
    int (*finalize)(void);
    const char *(*get)(const char *);
};

enum { MOST = 64 };

static const struct plugin *plugin;
static char **names;
static int name_count;
static long times;
static const char *first[MOST];

static void log_line(int level, unsigned long flags, const char *file, int line, const char *format, ...) {
    (void)level, (void)flags, (void)file, (void)line;
    va_list arguments;
    va_start(arguments, format);
    printf("log ");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Returns a null pointer if each answer is the first one, byte by byte. */
static void *ask(void *unused) {
    (void)unused;
    for (long i = 0; i < times; i++) {
        for (int n = 0; n < name_count; n++) {
            const char *value = plugin->get(names[n]);
            if (!value != !first[n] || (value && strcmp(value, first[n]) != 0)) return "differs";
        }
    }
    return NULL;
}

int main(int count, char **arguments) {
    if (count < 5 || count - 4 > MOST) return 2;
    for (int n = 4; n < count; n++) {
        char *value = strchr(arguments[n], '=');
        if (!value) continue;
        *value = '\0';
        if (setenv(arguments[n], value + 1, 1) != 0) return 2;
    }
    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
    plugin = dlsym(library, "ncclEnvPlugin_v2");
    const struct {
        const char *name;
        int (*init)(uint8_t, uint8_t, uint8_t, const char *);
    } *older = dlsym(library, "ncclEnvPlugin_v1");
    if (!plugin || !older) return 4;
    times = atol(arguments[2]);
    long threads = atol(arguments[3]);
    names = arguments + 4;
    name_count = count - 4;
    double start = now();
    if (plugin->init(2, 30, 7, "", log_line) != 0) return 5;
    double prepared = now();
    /* A second NCCL of the process. */
    if (older->init(2, 28, 9, "") != 0) return 5;
    for (int n = 0; n < name_count; n++) {
        first[n] = plugin->get(names[n]);
        printf(first[n] ? "%s=%s\n" : "%s\n", names[n], first[n]);
    }
    double asked = now();
    if (ask(NULL)) return 6;
    double answered = now();
    pthread_t started[MOST];
    for (long t = 0; t < threads; t++) {
        if (t >= MOST || pthread_create(&started[t], NULL, ask, NULL) != 0) return 7;
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(ask(NULL) ? 1 : 0);
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) return 8;
    for (long t = 0; t < threads; t++) {
        void *differs;
        if (pthread_join(started[t], &differs) != 0 || differs) return 9;
    }
    printf("init %.0f ns\nanswer %.0f ns\n", prepared - start, (answered - asked) / (double)(times * name_count));
    if (plugin->finalize() != 0) return 10;
    dlclose(library);
    return 0;
}
