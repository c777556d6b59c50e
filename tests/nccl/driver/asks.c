#include "asks.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "connections.h"
#include "host.h"
#include "nccl.h"
#include "nics.h"
#include "words.h"

int answers;
int nccl_log;

void prepare(void) {
    void (*read_conf_files)(void) = nccl("initEnv");
    read_conf_files();
}

/* NCCL has to log everything, whatever the case's own variables say about the log. */
static void log_all(void) {
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("NCCL_DEBUG_SUBSYS", "ALL", 1);
    unsetenv("NCCL_DEBUG_FILE");
}

/* The present end of the log. An answer names the part of the log that belongs to it. */
static long logged(void) {
    return lseek(nccl_log, 0, SEEK_CUR);
}

static void print_hex(const char *text) {
    dprintf(answers, " x");
    for (; *text; text++) dprintf(answers, "%02x", (unsigned char)*text);
}

/* conf NAME...: answers the values of the variables after NCCL has read the conf files. */
static void ask_conf(char **words, int count) {
    dprintf(answers, "conf");
    for (int i = 1; i < count; i++) {
        const char *value = getenv(text(words[i]));
        if (value) {
            print_hex(value);
        } else {
            dprintf(answers, " -");
        }
    }
    dprintf(answers, "\n");
}

/* param NAME DEFAULT: answers the integer that NCCL reads from the variable. */
static void ask_param(char **words, int count) {
    if (count != 3) misread(words[0]);
    log_all();
    int64_t uninitialized = INT64_MIN, value = uninitialized;
    if (nccl_version() < 22900) {
        void (*load)(const char *, int64_t, int64_t, int64_t *) = nccl("ncclLoadParam");
        load(text(words[1]), number(words[2]), uninitialized, &value);
    } else {
        int64_t (*load)(const char *, int64_t, int64_t, int64_t *, int8_t *) = nccl("ncclLoadParam");
        int64_t cache = uninitialized;
        int8_t unknown = -1;
        value = load(text(words[1]), number(words[2]), uninitialized, &cache, &unknown);
    }
    dprintf(answers, "param %ld\n", (long)value);
}

/* level NAME DISABLING-NAME: answers the distance that NCCL reads from the variable. */
static void ask_level(char **words, int count) {
    if (count != 3) misread(words[0]);
    log_all();
    int (*get)(int *, const char *, const char *) = nccl("ncclGetLevel");
    int level = -1;
    long start = logged();
    get(&level, text(words[2]), text(words[1]));
    dprintf(answers, "level %d %ld %ld\n", level, start, logged());
}

/* bootstrap: answers the interface through which the processes connect at first. */
static void ask_bootstrap(void) {
    log_all();
    int (*init)(void) = nccl("bootstrapNetInit");
    long start = logged();
    int code = init();
    dprintf(answers, "bootstrap %d %ld %ld", code, start, logged());
    if (code == 0) {
        const struct sockaddr *found = nccl("bootstrapNetIfAddr");
        char address[INET6_ADDRSTRLEN] = "?";
        const void *ip = found->sa_family == AF_INET6 ? (void *)&((struct sockaddr_in6 *)found)->sin6_addr
                                                      : (void *)&((struct sockaddr_in *)found)->sin_addr;
        inet_ntop(found->sa_family, ip, address, sizeof address);
        print_hex(nccl("bootstrapNetIfName"));
        dprintf(answers, " %s", address);
    }
    dprintf(answers, "\n");
}

/* What the initialization returns for the functions that connect, since 2.28. */
static void *context;

static int ib_init(void) {
    void *init = nccl("ncclIbInit");
    if (nccl_version() < 22600) return ((int (*)(void *))init)(NULL);
    if (nccl_version() < 22800) return ((int (*)(void *, void *))init)(NULL, NULL);
    /* The only member of NCCL's own structure is a traffic class. */
    struct { int traffic_class; } config = {-1};
    return ((int (*)(void **, uint64_t, void *, void *, void *))init)(&context, 0, &config, NULL, NULL);
}

/* Looks for the slot that NCCL would use on a port, as NCCL does when it connects. */
static int gid_index(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attributes, int *index) {
    int version = nccl_version();
    if (version < 22200) {
        int64_t (*param)(void) = nccl("ncclParamIbGidIndex");
        *index = (int)param();
        if (version < 22100 || *index >= 0) return 0;
        /* In 2.21 the compiler has left only the search of this function. */
        int (*search)(struct ibv_context *, uint8_t, int, int *) = nccl("ncclIbGetGidIndex");
        return search(context, port, attributes->gid_tbl_len, index);
    }
    /* On arm64, the compiler hands over the two fields that the function reads. */
    int (*fields)(struct ibv_context *, uint8_t, int, uint8_t, int *) = nccl_if_there("ncclIbGetGidIndex.isra");
    if (fields) return fields(context, port, attributes->gid_tbl_len, attributes->link_layer, index);
    int (*get)(struct ibv_context *, uint8_t, struct ibv_port_attr *, int *) = nccl("ncclIbGetGidIndex");
    return get(context, port, attributes, index);
}

static void ask_gids_of(struct ibv_context *context, const char *name, void *verbs) {
    int (*query_device)(struct ibv_context *, struct ibv_device_attr *) = dlsym(verbs, "ibv_query_device");
    int (*query_port)(struct ibv_context *, uint8_t, struct ibv_port_attr *) = dlsym(verbs, "ibv_query_port");
    struct ibv_device_attr device = {0};
    if (query_device(context, &device) != 0) return;
    for (int port = 1; port <= device.phys_port_cnt; port++) {
        struct ibv_port_attr attributes = {0};
        if (query_port(context, (uint8_t)port, &attributes) != 0) continue;
        if (attributes.state != IBV_PORT_ACTIVE) continue;
        int index = -1;
        long start = logged();
        int code = gid_index(context, (uint8_t)port, &attributes, &index);
        dprintf(answers, "gid %d %d %d %ld %ld", port, code, index, start, logged());
        print_hex(name);
        dprintf(answers, "\n");
    }
}

/* ib: answers the devices, and the slot of each port that is up, even if NCCL has not
 * chosen that port. */
static void ask_ib(void) {
    log_all();
    long start = logged();
    int code = ib_init();
    dprintf(answers, "ib %d %ld %ld\n", code, start, logged());
    void *verbs = dlopen("libibverbs.so.1", RTLD_NOW);
    if (code != 0 || !verbs) return;
    struct ibv_device **(*get_list)(int *) = dlsym(verbs, "ibv_get_device_list");
    struct ibv_context *(*open_device)(struct ibv_device *) = dlsym(verbs, "ibv_open_device");
    int count = 0;
    struct ibv_device **list = get_list(&count);
    for (int i = 0; list && i < count; i++) {
        struct ibv_context *context = open_device(list[i]);
        if (context) ask_gids_of(context, list[i]->name, verbs);
    }
}

/* nics: which of the devices become one NIC. Comes after `ib`. */
static void ask_nics(void) {
    log_all();
    long start = logged();
    int code = nccl_version() < 22400 ? 0 : make_nics();
    dprintf(answers, "nics %d %ld %ld\n", code, start, logged());
}

/* move FROM TO reported|silent: moves a GID to another entry, in each table. If the change is reported, NCCL has
 * reacted before the next question. Comes after `ib`. */
static void ask_move(char **words, int count) {
    if (count != 4) misread(words[0]);
    move_gid((int)number(words[1]), (int)number(words[2]));
    if (strcmp(words[3], "reported") == 0) report_change();
}

/* connect: answers the GID index of each queue pair when NCCL connects to itself. Comes after `ib`. For 2.26 and
 * later. */
static void ask_connect(void) {
    log_all();
    long start = logged();
    int code = connect_to_itself(context);
    dprintf(answers, "connect %d %ld %ld", code, start, logged());
    for (int i = 0; i < connected; i++) dprintf(answers, " %d", connected_by[i]);
    dprintf(answers, "\n");
}

/* fork: what follows is asked in a child, whose end is that of this process. */
static void ask_fork(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        return;
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) abort();
    _exit(0);
}

void ask(char **words, int count) {
    if (strcmp(words[0], "conf") == 0) {
        ask_conf(words, count);
    } else if (strcmp(words[0], "param") == 0) {
        ask_param(words, count);
    } else if (strcmp(words[0], "level") == 0) {
        ask_level(words, count);
    } else if (strcmp(words[0], "bootstrap") == 0) {
        ask_bootstrap();
    } else if (strcmp(words[0], "ib") == 0) {
        ask_ib();
    } else if (strcmp(words[0], "nics") == 0) {
        ask_nics();
    } else if (strcmp(words[0], "move") == 0) {
        ask_move(words, count);
    } else if (strcmp(words[0], "connect") == 0) {
        ask_connect();
    } else if (strcmp(words[0], "fork") == 0) {
        ask_fork();
    } else {
        misread(words[0]);
    }
}
