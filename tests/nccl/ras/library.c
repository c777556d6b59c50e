/* NVIDIA's library has a symbol table with its static functions. So those that ask CUDA or NVML can be
 * replaced by functions that answer as one of eight GPUs would, and NCCL initializes itself as far as
 * its bootstrap and its RAS server, without a GPU. */
#include "library.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef __x86_64__
#error "the replaced functions jump in x86-64's instructions"
#endif

#define GPUS 8
#define JUMP 12

static void *library;
static int rank;

static int succeed(void) {
    return 0;
}

static int current_gpu(int *gpu) {
    *gpu = rank % GPUS;
    return 0;
}

static int count_gpus(int *count) {
    *count = GPUS;
    return 0;
}

/* The attributes of an H100 that NCCL asks for: 9.0, and 227 KiB of shared memory. */
static int attribute(int *value, int which, int gpu) {
    (void)gpu;
    *value = which == 75 ? 9 : which == 76 ? 0 : which == 97 ? 232448 : 1;
    return 0;
}

static int allocate(void **memory, size_t size) {
    *memory = calloc(1, size + 64);
    return *memory ? 0 : 2;
}

static int bus_id(char *text, int size, int gpu) {
    snprintf(text, (size_t)size, "0000:%02x:00.0", 16 + gpu);
    return 0;
}

static int bus_number(int gpu, int64_t *number) {
    *number = 0x10000 + gpu * 0x1000;
    return 0;
}

static int cuda_version(int *version) {
    *version = 12080;
    return 0;
}

static int no_kernels(int architecture, int shared, size_t *stack) {
    (void)architecture;
    (void)shared;
    if (stack) *stack = 0;
    return 0;
}

static int nvml_index(void *device, unsigned *index) {
    (void)device;
    *index = (unsigned)(rank % GPUS);
    return 0;
}

static int nvml_handle(const char *bus, void **device) {
    (void)bus;
    *device = &rank;
    return 0;
}

static int cuda_context(void **context) {
    static void *empty[64];
    *context = empty;
    return 0;
}

static int compute_capability(void) {
    return 90;
}

static int no_gpudirect(void *communicator, int *supported) {
    (void)communicator;
    *supported = 0;
    return 0;
}

static void jump(char *from, void *to);

/* The rest of the initialization, from the topology on, needs GPUs. It is left out: the function that
 * asks for the topology returns to the caller of the whole step, which then takes it as done. */
static char *step, saved[JUMP];
static jmp_buf before;

static int run_step(void *communicator, void *parent, void *timers) {
    memcpy(step, saved, JUMP);
    if (setjmp(before) == 0) ((int (*)(void *, void *, void *))step)(communicator, parent, timers);
    return 0;
}

static int leave_step(void) {
    longjmp(before, 1);
}

/* C functions, and C++ functions by their names without arguments. */
static const struct {
    const char *name;
    void *function;
} REPLACED[] = {
    {"cudaGetDevice", current_gpu},
    {"cudaGetDeviceCount", count_gpus},
    {"cudaDeviceGetAttribute", attribute},
    {"cudaHostAlloc", allocate},
    {"cudaMallocHost", allocate},
    {"cudaMalloc", allocate},
    {"cudaDeviceGetPCIBusId", bus_id},
    {"cudaDriverGetVersion", cuda_version},
    {"cudaRuntimeGetVersion", cuda_version},
    {"ncclInitKernelsForDevice", no_kernels},
    {"ncclNvmlDeviceGetIndex", nvml_index},
    {"ncclNvmlDeviceGetHandleByPciBusId", nvml_handle},
    {"ncclNvmlEnsureInitialized", succeed},
    {"ncclCudaLibraryInit", succeed},
    {"ncclCudaContextTrack", cuda_context},
    {"ncclCudaCompCap", compute_capability},
    {"getBusId", bus_number},
    {"initTransportsRank", run_step},
    {"ncclTopoGetSystem", leave_step},
    {"ncclGpuGdrSupport", no_gpudirect},
    {"dmaBufSupported", compute_capability},
};

/* Whether a mangled name is a function or a static function of this name, and no clone of a part. */
static int is_named(const char *symbol, const char *name) {
    if (strcmp(symbol, name) == 0) return 1;
    if (strchr(symbol, '.')) return 0;
    size_t length = strlen(name);
    char *end;
    if (strncmp(symbol, "_ZL", 3) == 0) {
        symbol += 3;
    } else if (strncmp(symbol, "_Z", 2) == 0) {
        symbol += 2;
    } else {
        return 0;
    }
    return strtoul(symbol, &end, 10) == length && strncmp(end, name, length) == 0;
}

static void *replacement(const char *symbol) {
    for (size_t i = 0; i < sizeof REPLACED / sizeof *REPLACED; i++) {
        if (is_named(symbol, REPLACED[i].name)) return REPLACED[i].function;
    }
    if (strncmp(symbol, "cuda", 4) == 0 && symbol[4] >= 'A' && symbol[4] <= 'Z') return succeed;
    /* The other questions to NVML, but not the parts of functions that are set aside. */
    int is_nvml = strncmp(symbol, "_Z", 2) == 0 && symbol[2] >= '0' && symbol[2] <= '9' &&
                  strstr(symbol, "ncclNvmlDevice") && !strchr(symbol, '.');
    return is_nvml ? succeed : NULL;
}

static void jump(char *from, void *to) {
    char code[JUMP] = {0x48, (char)0xb8, 0, 0, 0, 0, 0, 0, 0, 0, (char)0xff, (char)0xe0};
    memcpy(code + 2, &to, sizeof to);
    uintptr_t page = (uintptr_t)from & ~(uintptr_t)4095;
    if (mprotect((void *)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) abort();
    memcpy(from, code, JUMP);
}

static void replace(const Elf64_Sym *symbol, const char *name, char *base) {
    char *place = base + symbol->st_value;
    if (ELF64_ST_TYPE(symbol->st_info) == STT_OBJECT) {
        /* A function of the driver, which NCCL would look up. */
        if (strncmp(name, "pfn_cu", 6) == 0) *(void **)place = succeed;
        return;
    }
    void *function = ELF64_ST_TYPE(symbol->st_info) == STT_FUNC ? replacement(name) : NULL;
    if (!function) return;
    if (function == run_step) {
        step = place;
        memcpy(saved, place, JUMP);
    }
    jump(place, function);
}

void *exported(const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "ras: the library has no %s\n", name);
        exit(2);
    }
    return found;
}

void open_library(const char *path) {
    rank = atoi(getenv("RANK"));
    library = dlopen(path, RTLD_NOW);
    struct link_map *map;
    if (!library || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) {
        fprintf(stderr, "ras: %s\n", dlerror());
        exit(2);
    }
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (file < 0 || fstat(file, &status) != 0) abort();
    char *image = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (image == MAP_FAILED) abort();
    const Elf64_Ehdr *header = (void *)image;
    const Elf64_Shdr *sections = (void *)(image + header->e_shoff);
    for (int i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB) continue;
        const Elf64_Sym *symbols = (void *)(image + sections[i].sh_offset);
        const char *names = image + sections[sections[i].sh_link].sh_offset;
        for (size_t s = 0; s < sections[i].sh_size / sizeof *symbols; s++) {
            if (symbols[s].st_value) replace(&symbols[s], names + symbols[s].st_name, (char *)map->l_addr);
        }
    }
    munmap(image, (size_t)status.st_size);
    close(file);
    if (!step) {
        fprintf(stderr, "ras: the library has no initTransportsRank\n");
        exit(2);
    }
}
