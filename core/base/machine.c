/* machine.c: limits of control groups.
 *
 * A process's groups stand in /proc/self/cgroup, one line a hierarchy: "0::PATH" is version 2, "N:cpu,cpuacct:PATH" is
 * version 1. Where a hierarchy is mounted, and which of its groups is the mount's root, stands in /proc/self/mountinfo;
 * in a container without a namespace of its own PATH may lead out of what is mounted there, and then the mount's root
 * is the container. The usual places are looked at as well, so that a folder mounted over them counts. */
#include "base/machine.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_MOUNTS = 16 };

/* Of version 2 all controllers are in one hierarchy. */
enum hierarchy { UNIFIED, CPU, MEMORY };

struct mount {
    enum hierarchy hierarchy;
    char root[512], point[512]; /* the group that is mounted, and where; "" and "/sys/fs/cgroup" */
};

struct limits {
    const char *machine; /* root of all paths */
    bool available;      /* of memory: less what is used */
    uint32_t processors;
    uint64_t bytes;
};

/* ---- small files --------------------------------------------------------------------------------------- */

/* The beginning of a small file as a text, "" where there is none. */
static const char *read_text(const char *machine, const char *folder, const char *name, char *text, size_t cap)
{
    char path[PATH_MAX];
    text[0] = '\0';
    if (snprintf(path, sizeof path, "%s%s/%s", machine, folder, name) >= (int)sizeof path) return text;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return text;
    size_t n = 0;
    for (ssize_t got; n < cap - 1 && (got = read(fd, text + n, cap - 1 - n)) > 0;) n += (size_t)got;
    text[n] = '\0';
    (void)close(fd);
    return text;
}

/* A number alone: "max", "-1" and anything else are none. */
static bool read_number(const char *machine, const char *folder, const char *name, uint64_t *out)
{
    char text[64];
    read_text(machine, folder, name, text, sizeof text);
    return text[0] >= '0' && text[0] <= '9' && sscanf(text, "%" SCNu64, out) == 1;
}

/* ---- one group ----------------------------------------------------------------------------------------- */

static void limit_processors(struct limits *l, uint64_t quota, uint64_t period)
{
    if (!quota || !period) return;
    const uint64_t whole = quota / period + (quota % period != 0);
    if (whole < l->processors) l->processors = (uint32_t)whole;
}

static void limit_cpu(struct limits *l, const char *folder)
{
    uint64_t quota, period;
    if (read_number(l->machine, folder, "cpu.cfs_quota_us", &quota) &&
        read_number(l->machine, folder, "cpu.cfs_period_us", &period))
        limit_processors(l, quota, period);
}

/* Pages of files that the kernel would give up for others: they count as used, and stand in nobody's way. */
static uint64_t given_up(const struct limits *l, const char *folder, const char *const names[2])
{
    char text[8192];
    uint64_t sum = 0, value;
    read_text(l->machine, folder, "memory.stat", text, sizeof text);
    for (char *line = text, *end; *line; line = end) {
        end = line + strcspn(line, "\n");
        if (*end) *end++ = '\0';
        for (int i = 0; i < 2; i++) {
            const size_t n = strlen(names[i]);
            if (strncmp(line, names[i], n) == 0 && line[n] == ' ' && sscanf(line + n, "%" SCNu64, &value) == 1)
                sum += value;
        }
    }
    return sum;
}

static void limit_memory(struct limits *l, const char *folder, bool unified)
{
    static const char *const stat[2][2] = { { "total_inactive_file", "total_active_file" },
                                            { "inactive_file", "active_file" } };
    uint64_t limit, used = 0;
    if (!read_number(l->machine, folder, unified ? "memory.max" : "memory.limit_in_bytes", &limit)) return;
    if (l->available && read_number(l->machine, folder, unified ? "memory.current" : "memory.usage_in_bytes", &used)) {
        const uint64_t file = given_up(l, folder, stat[unified]);
        used = file < used ? used - file : 0;
        limit = used < limit ? limit - used : 0;
    }
    if (limit < l->bytes) l->bytes = limit;
}

static void limit_group(struct limits *l, enum hierarchy h, const char *folder)
{
    char text[64];
    uint64_t quota, period;
    if (h == CPU) {
        limit_cpu(l, folder);
    } else if (h == MEMORY) {
        limit_memory(l, folder, false);
    } else {
        read_text(l->machine, folder, "cpu.max", text, sizeof text);
        if (text[0] >= '0' && text[0] <= '9' && sscanf(text, "%" SCNu64 " %" SCNu64, &quota, &period) == 2)
            limit_processors(l, quota, period);
        limit_memory(l, folder, true);
    }
}

/* ---- all groups ---------------------------------------------------------------------------------------- */

/* The group `path` and all above it, as far as the mount shows them. */
static void limit_path(struct limits *l, const struct mount *m, const char *path)
{
    char folder[PATH_MAX];
    const size_t root = strlen(m->root), point = strlen(m->point);
    if (strncmp(path, m->root, root) == 0 && (!path[root] || path[root] == '/')) path += root;
    if (strstr(path, "/..") || snprintf(folder, sizeof folder, "%s%s", m->point, path) >= (int)sizeof folder)
        (void)snprintf(folder, sizeof folder, "%s", m->point); /* what lies outside of the mount cannot be seen */
    for (;;) {
        limit_group(l, m->hierarchy, folder);
        char *end = strlen(folder) > point ? strrchr(folder, '/') : NULL;
        if (!end || end < folder + point) return;
        *end = '\0';
    }
}

/* Is `word` one of the words of a list like "cpu,cpuacct"? */
static bool listed(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (strncmp(p, word, n) == 0 && (!p[n] || p[n] == ',')) return true;
    return false;
}

/* The groups of one hierarchy's mount: lines of /proc/self/cgroup. */
static void limit_mount(struct limits *l, const struct mount *m, const char *groups)
{
    static const char *const names[] = { [CPU] = "cpu", [MEMORY] = "memory" };
    char line[1024];
    for (const char *p = groups; *p;) {
        const size_t n = strcspn(p, "\n");
        (void)snprintf(line, sizeof line, "%.*s", (int)n, p);
        p += n + (p[n] == '\n');
        char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        list++;
        if (m->hierarchy == UNIFIED ? !*list : listed(list, names[m->hierarchy])) limit_path(l, m, path);
    }
}

/* mountinfo writes spaces and the like as \040. */
static void unescape(char *text)
{
    char *to = text;
    unsigned code;
    for (const char *p = text; *p;) {
        if (*p == '\\' && sscanf(p + 1, "%3o", &code) == 1) {
            *to++ = (char)code;
            p += 4;
        } else {
            *to++ = *p++;
        }
    }
    *to = '\0';
}

static void add_mount(struct mount *mounts, uint32_t *n, enum hierarchy h, const char *root, const char *point)
{
    if (*n == MAX_MOUNTS) return;
    struct mount *m = &mounts[(*n)++];
    m->hierarchy = h;
    (void)snprintf(m->root, sizeof m->root, "%.511s", strcmp(root, "/") == 0 ? "" : root);
    (void)snprintf(m->point, sizeof m->point, "%.511s", point);
}

/* ID PARENT DEVICE ROOT POINT OPTIONS [FIELDS...] - TYPE SOURCE SUPER-OPTIONS */
static void read_mounts(const char *machine, struct mount *mounts, uint32_t *n)
{
    char path[PATH_MAX], line[4096], root[512], point[512], type[32], options[256];
    if (snprintf(path, sizeof path, "%s/proc/self/mountinfo", machine) >= (int)sizeof path) return;
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        const char *tail = strstr(line, " - ");
        if (!tail || sscanf(line, "%*s %*s %*s %511s %511s", root, point) != 2 ||
            sscanf(tail, " - %31s %*s %255s", type, options) != 2)
            continue;
        unescape(root);
        unescape(point);
        if (strcmp(type, "cgroup2") == 0) add_mount(mounts, n, UNIFIED, root, point);
        if (strcmp(type, "cgroup") == 0 && listed(options, "cpu")) add_mount(mounts, n, CPU, root, point);
        if (strcmp(type, "cgroup") == 0 && listed(options, "memory")) add_mount(mounts, n, MEMORY, root, point);
    }
    if (f) (void)fclose(f);
}

static void apply_groups(struct limits *l)
{
    static const struct {
        enum hierarchy hierarchy;
        const char *point;
    } usual[] = { { UNIFIED, "/sys/fs/cgroup" },
                  { UNIFIED, "/sys/fs/cgroup/unified" },
                  { CPU, "/sys/fs/cgroup/cpu" },
                  { CPU, "/sys/fs/cgroup/cpu,cpuacct" },
                  { MEMORY, "/sys/fs/cgroup/memory" } };
    char groups[16384];
    struct mount mounts[MAX_MOUNTS];
    uint32_t n = 0;
    read_text(l->machine, "/proc/self", "cgroup", groups, sizeof groups);
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        add_mount(mounts, &n, usual[i].hierarchy, "/", usual[i].point);
    read_mounts(l->machine, mounts, &n);
    for (uint32_t i = 0; i < n; i++) limit_mount(l, &mounts[i], groups);
}

uint32_t machine_processors_within(const char *root, uint32_t processors)
{
    struct limits l = { .machine = root, .processors = processors, .bytes = UINT64_MAX };
    apply_groups(&l);
    return l.processors;
}

static uint64_t memory_within(const char *root, uint64_t bytes, bool available)
{
    struct limits l = { .machine = root, .available = available, .processors = UINT32_MAX, .bytes = bytes };
    apply_groups(&l);
    return l.bytes;
}

uint64_t machine_memory_within(const char *root, uint64_t bytes) { return memory_within(root, bytes, false); }

uint64_t machine_memory_available_within(const char *root, uint64_t bytes) { return memory_within(root, bytes, true); }

/* ---- this machine -------------------------------------------------------------------------------------- */

uint32_t machine_processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return machine_processors_within("", (uint32_t)CPU_COUNT(&set));
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return machine_processors_within("", n > 0 ? (uint32_t)n : 1);
}

/* 0 says "not known" to callers: a group that is full has one byte. */
static uint64_t known(uint64_t bytes) { return bytes == UINT64_MAX ? 0 : bytes ? bytes : 1; }

uint64_t machine_memory_available(void)
{
    char line[128];
    uint64_t kib = 0;
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1) break;
    if (f) (void)fclose(f);
    return known(machine_memory_available_within("", kib ? kib * 1024 : UINT64_MAX));
}

uint64_t machine_memory(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return known(machine_memory_within("", pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : UINT64_MAX));
}
