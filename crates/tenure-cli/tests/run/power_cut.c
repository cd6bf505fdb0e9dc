// Loaded before the C library: each time a file in POWER_CUT_FROM is synced, it is copied to
// POWER_CUT_TO; each time that folder is synced, what was deleted there is deleted here. So the second
// folder is at any moment what a power cut would leave of the first.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void forget(const char *from, const char *to) {
    char there[4096], here[4096];
    DIR *all = opendir(to);
    for (struct dirent *one; all && (one = readdir(all));) {
        snprintf(there, sizeof there, "%s/%s", from, one->d_name);
        snprintf(here, sizeof here, "%s/%s", to, one->d_name);
        if (access(there, F_OK) && !strstr(here, ".part")) unlink(here);
    }
    if (all) closedir(all);
}

static void keep(int file) {
    const char *from = getenv("POWER_CUT_FROM"), *to = getenv("POWER_CUT_TO");
    char link[64], path[2048], part[4096], whole[4096], bytes[65536];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    struct stat about;
    if (!from || !to || length < 0 || fstat(file, &about)) return;
    path[length] = 0;
    if (!strcmp(path, from)) forget(from, to);
    if (!S_ISREG(about.st_mode)) return;
    char *name = strrchr(path, '/');
    if (strncmp(path, from, strlen(from)) || name != path + strlen(from)) return;
    snprintf(part, sizeof part, "%s%s.%d.part", to, name, getpid());
    snprintf(whole, sizeof whole, "%s%s", to, name);
    // Through the descriptor that is there: to close another one of a database would end SQLite's locks.
    int copy = open(part, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    off_t at = 0;
    while ((length = pread(file, bytes, sizeof bytes, at)) > 0) {
        if (write(copy, bytes, length) != length) abort();
        at += length;
    }
    if (copy < 0 || length < 0 || close(copy) || rename(part, whole)) abort();
}

int fsync(int file) {
    int result = syscall(SYS_fsync, file);
    if (result == 0) keep(file);
    return result;
}

int fdatasync(int file) {
    int result = syscall(SYS_fdatasync, file);
    if (result == 0) keep(file);
    return result;
}
