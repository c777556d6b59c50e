/* Runs a program of arm64 in QEMU, in front of which it stands with the program's own name:
 *
 *   gcc -static -DPROGRAM='"/path/rdma-init"' -DQEMU='"/usr/bin/qemu-aarch64-static"' emulate.c
 *
 * QEMU hands the environment to the program from the last entry to the first. The order decides
 * what the program says first, so it is turned here, too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv, char **envp) {
    size_t count = 0;
    while (envp[count])
        count++;
    for (size_t i = 0; i < count / 2; i++) {
        char *first = envp[i];
        envp[i] = envp[count - 1 - i];
        envp[count - 1 - i] = first;
    }
    char **arguments = calloc(argc + 5, sizeof *arguments);
    if (!arguments)
        return 125;
    arguments[0] = QEMU;
    arguments[1] = "-0";
    arguments[2] = argc ? argv[0] : "";
    arguments[3] = PROGRAM;
    for (int i = 1; i < argc; i++)
        arguments[3 + i] = argv[i];
    execve(QEMU, arguments, envp);
    perror(QEMU);
    return 125;
}
