/* Preloaded into a server: its wall clock runs ahead of the machine's by the nanoseconds that stand in the file named by
 * DLOCK_AHEAD. System calls only, since looking up the originals allocates, and an allocator may ask for the time.
 * Clocks that only measure stay as they are. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static const volatile int64_t *ahead;

__attribute__((constructor)) static void find_the_file(void) {
    const char *name = getenv("DLOCK_AHEAD");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED)
        ahead = mapped;
    close(file);
}

static int64_t wall(void) {
    struct timespec now = {0, 0};
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
    return now.tv_sec * SECOND + now.tv_nsec + (ahead ? *ahead : 0);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)
        return syscall(SYS_clock_gettime, clock, now);
    int64_t at = wall();
    now->tv_sec = at / SECOND;
    now->tv_nsec = at % SECOND;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    int64_t at = wall();
    now->tv_sec = at / SECOND;
    now->tv_usec = at % SECOND / 1000;
    return 0;
}

time_t time(time_t *now) {
    time_t at = wall() / SECOND;
    if (now)
        *now = at;
    return at;
}
