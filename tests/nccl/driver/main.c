/* Runs NCCL's own decisions, case by case.
 *
 *   driver described|real|started LIBNCCL NAME=OFFSET...
 *
 * It reads cases from standard input. A case is some lines, the last of which is "run".
 * The lines before the first "ask" describe the host. In the mode `real`, the host is
 * this machine, and these lines only give variables. The mode `started` is the same with
 * the variables with which the driver itself was started, so that the driver can be
 * the command of a job. The driver writes a line for each answer, then "end SIGNAL
 * STATUS SIZE" and SIZE bytes of NCCL's log. Each case runs in a child, because NCCL
 * reads everything only once. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/wait.h>
#include <unistd.h>

#include "asks.h"
#include "host.h"
#include "nccl.h"
#include "words.h"

/* A case takes milliseconds, but many processes may share a busy machine. */
enum { DEADLINE = 120, MOST_WORDS = 256 };

static enum mode mode;

static _Noreturn void run_case(char *lines) {
    /* A case that hangs dies of this signal. */
    alarm(DEADLINE);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(nccl_log, STDOUT_FILENO);
    dup2(nccl_log, STDERR_FILENO);
    /* With a buffer of one line, a crash loses no earlier line of the log. */
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    struct host host = {0};
    bool started = false;
    char *rest;
    for (char *line = strtok_r(lines, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *words[MOST_WORDS];
        int count = split(line, words, MOST_WORDS);
        if (strcmp(words[0], "ask") != 0) {
            if (started || !describe(&host, words, count)) misread(words[0]);
            continue;
        }
        if (!started) {
            started = true;
            move_to(&host, mode);
            prepare();
        }
        ask(words + 1, count - 1);
    }
    fflush(stdout);
    _exit(0);
}

/* Copies a file to standard output, and empties it. */
static void hand_over(int file) {
    off_t from = 0, size = lseek(file, 0, SEEK_END);
    while (from < size) {
        if (sendfile(STDOUT_FILENO, file, &from, (size_t)(size - from)) < 0) exit(1);
    }
    if (ftruncate(file, 0) != 0 || lseek(file, 0, SEEK_SET) != 0) abort();
}

static void run(char *lines) {
    pid_t child = fork();
    if (child == 0) run_case(lines);
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("a case cannot be run");
        exit(1);
    }
    hand_over(answers);
    long size = lseek(nccl_log, 0, SEEK_END);
    dprintf(STDOUT_FILENO, "end %d %d %ld\n", WTERMSIG(status), WEXITSTATUS(status), size);
    hand_over(nccl_log);
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    if (strcmp(arguments[1], "real") == 0) mode = REAL;
    if (strcmp(arguments[1], "started") == 0) mode = STARTED;
    load_nccl(arguments[2], arguments + 3);
    /* Libraries that are loaded here need not be loaded in each child. */
    dlopen("libibverbs.so", RTLD_NOW);
    dlopen("libibverbs.so.1", RTLD_NOW);
    /* This makes the loader remember for the children which directories do not exist. */
    dlopen("no-such-library.so", RTLD_NOW);
    answers = memfd_create("answers", MFD_CLOEXEC);
    nccl_log = memfd_create("log", MFD_CLOEXEC);
    char *lines = NULL, *line = NULL;
    size_t size = 0, room = 0, line_room = 0;
    ssize_t length;
    while ((length = getline(&line, &line_room, stdin)) > 0) {
        if (strcmp(line, "run\n") == 0) {
            run(lines);
            size = 0;
            continue;
        }
        if (size + (size_t)length + 1 > room) {
            room = 2 * (size + (size_t)length + 1);
            lines = realloc(lines, room);
            if (!lines) abort();
        }
        memcpy(lines + size, line, (size_t)length + 1);
        size += (size_t)length;
    }
    return 0;
}
