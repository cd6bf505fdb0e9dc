/* Shows a server another time than there is: preloaded, it answers for the clocks of the C library.
 *
 * What to show is in a file that the test kit writes and this library maps. Nothing here allocates or
 * looks up symbols: an allocator asks for the time while it starts. The real time comes from the
 * kernel directly. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define BILLION 1000000000LL

struct shown {
    uint64_t version; /* odd while it is written */
    int64_t frozen;   /* 1: the time is `nanos`; 0: it is the real time plus `nanos` */
    int64_t nanos;
    int64_t monotonic; /* 1: the monotonic clock moves along */
};

static const struct shown *shown;

__attribute__((constructor)) static void map_file(void) {
    const char *path = getenv("TENURE_CLOCK");
    if (!path) return;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) _exit(97); /* better no server than one with the wrong time */
    void *at = mmap(0, sizeof(struct shown), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (at == MAP_FAILED) _exit(98);
    shown = at;
}

static int64_t real(clockid_t clock) {
    struct timespec now = {0, 0};
    syscall(SYS_clock_gettime, clock, &now);
    return now.tv_sec * BILLION + now.tv_nsec;
}

static struct shown read_shown(void) {
    struct shown copy = {0, 0, 0, 0};
    const struct shown *from = __atomic_load_n(&shown, __ATOMIC_ACQUIRE);
    while (from) {
        copy.version = __atomic_load_n(&from->version, __ATOMIC_ACQUIRE);
        copy.frozen = __atomic_load_n(&from->frozen, __ATOMIC_RELAXED);
        copy.nanos = __atomic_load_n(&from->nanos, __ATOMIC_RELAXED);
        copy.monotonic = __atomic_load_n(&from->monotonic, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        uint64_t after = __atomic_load_n(&from->version, __ATOMIC_RELAXED);
        if (copy.version % 2 == 0 && copy.version == after) break;
    }
    return copy;
}

/* How far what is shown is from the truth. */
static int64_t shift(const struct shown *s) {
    return s->frozen ? s->nanos - real(CLOCK_REALTIME) : s->nanos;
}

static int64_t wall(void) {
    struct shown s = read_shown();
    return s.frozen ? s.nanos : real(CLOCK_REALTIME) + s.nanos;
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    struct shown s;
    int64_t now;
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        now = wall();
        break;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_BOOTTIME:
        s = read_shown();
        now = real(clock) + (s.monotonic ? shift(&s) : 0);
        break;
    default:
        return (int)syscall(SYS_clock_gettime, clock, out);
    }
    out->tv_sec = now / BILLION;
    out->tv_nsec = now % BILLION;
    return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    (void)zone;
    int64_t now = wall();
    if (out) {
        out->tv_sec = now / BILLION;
        out->tv_usec = now % BILLION / 1000;
    }
    return 0;
}

time_t time(time_t *out) {
    time_t now = wall() / BILLION;
    if (out) *out = now;
    return now;
}
