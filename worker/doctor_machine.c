/* doctor_machine.c: what the system is asked for `worker doctor`: processor, memory, limits, ports, folders, and what
 * there is of a GPU before CUDA is asked. */
#include "doctor.h"

#include <dirent.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/machine.h"
#include "hub/catalog.h"
#include "plugin/plugin.h"
#include "setup.h"
#include "text.h"

#define FEW_BYTES (1ull << 30) /* of memory, in which next to no model fits */
enum { FEW_FILES = 4096, PINNED = 64 << 20 /* bytes that an upload to a GPU pins */ };

/* The first line of a small file, without its end. False: it cannot be read. */
static bool first_line(const char *path, char *out, size_t cap)
{
    FILE *f = fopen(path, "re");
    const bool read = f && fgets(out, (int)cap, f);
    if (f) (void)fclose(f);
    if (read) out[strcspn(out, "\n")] = '\0';
    return read;
}

void doctor_processor(struct doctor *d)
{
    const uint32_t isa = plugin_detect_isa();
    const bool portable = strcmp(plugin_isa_name(isa), "portable") == 0;
    (void)doctor_find(d, "processor", portable ? FINDING_NOTE : FINDING_OK, "%u processors, %s%s", machine_processors(),
                      plugin_isa_name(isa), portable ? ": without AVX2 models are slow" : "");
}

void doctor_memory(struct doctor *d)
{
    const uint64_t all = machine_memory(), left = machine_memory_available();
    char a[SIZE_TEXT], b[SIZE_TEXT], pages[256];
    if (!all || !left) {
        (void)doctor_find(d, "memory", FINDING_NOTE, "how much memory there is cannot be read from /proc");
    } else {
        struct finding *f = doctor_find(d, "memory", left < FEW_BYTES ? FINDING_ADVICE : FINDING_OK,
                                        "%s of %s available", size_text(left, a), size_text(all, b));
        if (left < FEW_BYTES) doctor_mend(f, "ps -eo rss,pid,comm --sort=-rss | head   # what takes it");
    }
    static const char path[] = "/sys/kernel/mm/transparent_hugepage/enabled";
    if (!first_line(path, pages, sizeof pages)) return;
    if (!strstr(pages, "[never]")) {
        (void)doctor_find(d, "huge pages", FINDING_OK, "%s", pages);
        return;
    }
    doctor_mend(doctor_find(d, "huge pages", FINDING_ADVICE, "turned off: reading weights is slower"),
                "echo madvise | sudo tee %s", path);
}

static void limit_text(rlim_t value, bool bytes, char out[SIZE_TEXT])
{
    if (value == RLIM_INFINITY)
        (void)snprintf(out, SIZE_TEXT, "unlimited");
    else if (bytes)
        (void)size_text(value, out);
    else
        (void)snprintf(out, SIZE_TEXT, "%llu", (unsigned long long)value);
}

void doctor_limits(struct doctor *d)
{
    struct rlimit files = { 0 }, locked = { 0 }, space = { 0 };
    char soft[SIZE_TEXT], hard[SIZE_TEXT];
    (void)getrlimit(RLIMIT_NOFILE, &files);
    (void)getrlimit(RLIMIT_MEMLOCK, &locked);
    (void)getrlimit(RLIMIT_AS, &space);
    limit_text(files.rlim_cur, false, soft);
    limit_text(files.rlim_max, false, hard);
    const bool few = files.rlim_max < FEW_FILES;
    struct finding *f = doctor_find(d, "open files", few ? FINDING_ADVICE : FINDING_OK,
                                    "%s, which a worker raises up to %s as it needs them%s", soft, hard,
                                    few ? ": too few for many connections" : "");
    if (few) doctor_mend(f, "ulimit -n 65536   # as root; of a service: LimitNOFILE=65536");
    limit_text(locked.rlim_cur, true, soft);
    const bool tight = (d->wants_gpu || d->has_gpu) && locked.rlim_cur < PINNED;
    f = doctor_find(d, "locked memory", tight ? FINDING_ADVICE : FINDING_OK, "%s%s", soft,
                    tight ? ": a GPU's upload wants 64 MiB" : "");
    if (tight)
        doctor_mend(f, "ulimit -l unlimited   # of a service: LimitMEMLOCK=infinity; of a container: --ulimit "
                       "memlock=-1");
    if (space.rlim_cur == RLIM_INFINITY) return;
    limit_text(space.rlim_cur, true, soft);
    doctor_mend(
        doctor_find(d, "address space", FINDING_ADVICE, "limited to %s: models are mapped, and need more", soft),
        "ulimit -v unlimited");
}

const char *doctor_quoted(const char *path, char out[QUOTED])
{
    size_t n = 0;
    out[n++] = '\'';
    for (; *path && n < QUOTED - 6; path++) {
        if (*path == '\'') {
            memcpy(out + n, "'\\''", 4);
            n += 4;
        } else {
            out[n++] = *path;
        }
    }
    out[n++] = '\'';
    out[n] = '\0';
    return out;
}

/* ---- ports and folders --------------------------------------------------------------------------------- */

/* 0, or why the address cannot be listened on. port 0: any; *port becomes which. */
static int try_listen(const char *host, uint32_t *port)
{
    char service[16];
    struct addrinfo *list = NULL, hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV };
    (void)snprintf(service, sizeof service, "%u", *port);
    if (getaddrinfo(host, service, &hints, &list) != 0) return EADDRNOTAVAIL;
    const int s = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int e = s < 0 ? errno : 0;
    if (!e) {
        (void)setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
        if (bind(s, list->ai_addr, list->ai_addrlen) != 0 || listen(s, 1) != 0) e = errno;
    }
    struct sockaddr_storage got = { 0 };
    socklen_t len = sizeof got;
    char name[16] = "";
    if (!e && getsockname(s, (struct sockaddr *)&got, &len) == 0 &&
        getnameinfo((struct sockaddr *)&got, len, NULL, 0, name, sizeof name, NI_NUMERICSERV) == 0)
        *port = (uint32_t)strtoul(name, NULL, 10);
    if (s >= 0) (void)close(s);
    freeaddrinfo(list);
    return e;
}

void doctor_port(struct doctor *d)
{
    const char *host = option_text(d->o, OPT_HOST);
    const uint32_t asked = option_u32(d->o, OPT_PORT);
    uint32_t port = asked, other = 0;
    const int e = try_listen(host, &port);
    if (!e) {
        (void)doctor_find(d, "port", FINDING_OK, "%s port %u is free", host, asked);
        return;
    }
    struct finding *f = doctor_find(d, "port", FINDING_ADVICE, "%s port %u: %s%s", host, asked, strerror(e),
                                    e == EADDRINUSE ? ": perhaps by a worker (worker status)" : "");
    if (e == EADDRINUSE && !try_listen(host, &other))
        doctor_mend(f, "worker serve --port %u   # a free one; ss -ltnp 'sport = :%u' shows who has this one", other,
                    asked);
    else if (e == EADDRNOTAVAIL)
        doctor_mend(f, "ip address   # which addresses this machine has: --host must be one of them");
}

/* The nearest folder above that is there. */
static void existing(char *path)
{
    struct stat st;
    while (stat(path, &st) != 0 && strrchr(path, '/') > path) *strrchr(path, '/') = '\0';
}

void doctor_folder(struct doctor *d)
{
    struct stat st;
    struct statvfs v;
    char *folder = catalog_folder(option_text(d->o, OPT_MODEL_DIR)), size[SIZE_TEXT] = "?";
    if (!folder) {
        doctor_mend(doctor_find(d, "model folder", FINDING_ADVICE, "HOME is not set, so there is none"),
                    "export WORKER_MODEL_DIR=/srv/models");
        return;
    }
    char quoted[QUOTED];
    (void)doctor_quoted(folder, quoted);
    const bool there = stat(folder, &st) == 0;
    if (there && !S_ISDIR(st.st_mode)) {
        doctor_mend(doctor_find(d, "model folder", FINDING_ADVICE, "%s: is no folder", folder),
                    "mv %s %s.old && mkdir -p %s", quoted, quoted, quoted);
    } else if (there && access(folder, W_OK | X_OK) != 0) {
        doctor_mend(doctor_find(d, "model folder", FINDING_ADVICE,
                                "%s: cannot be written to (%s), so worker pull cannot put models there", folder,
                                strerror(errno)),
                    "sudo chown %u %s", (unsigned)geteuid(), quoted);
    } else if (there) {
        if (statvfs(folder, &v) == 0) (void)size_text((uint64_t)v.f_bavail * v.f_frsize, size);
        (void)doctor_find(d, "model folder", FINDING_OK, "%s: can be written to, %s free", folder, size);
    } else {
        char *above = strdup(folder);
        if (above) existing(above);
        const bool can = above && access(above, W_OK | X_OK) == 0;
        doctor_mend(doctor_find(d, "model folder", can ? FINDING_NOTE : FINDING_ADVICE, "%s: is not there yet%s",
                                folder, can ? "; worker pull makes it" : " and cannot be made"),
                    "%smkdir -p %s", can ? "" : "sudo ", quoted);
        free(above);
    }
    free(folder);
}

/* ---- a GPU ---------------------------------------------------------------------------------------------- */

/* The bus address of an NVIDIA display or compute device; false: there is none. */
static bool find_gpu(char out[64])
{
    static const char root[] = "/sys/bus/pci/devices";
    char path[512], line[64];
    bool found = false;
    DIR *dir = opendir(root);
    for (const struct dirent *e; dir && !found && (e = readdir(dir));) {
        if (e->d_name[0] == '.') continue;
        (void)snprintf(path, sizeof path, "%s/%s/vendor", root, e->d_name);
        if (!first_line(path, line, sizeof line) || strcmp(line, "0x10de") != 0) continue;
        (void)snprintf(path, sizeof path, "%s/%s/class", root, e->d_name);
        found = first_line(path, line, sizeof line) && strncmp(line, "0x03", 4) == 0;
        if (found) (void)snprintf(out, 64, "%.60s", e->d_name);
    }
    if (dir) (void)closedir(dir);
    return found;
}

static void check_device_files(struct doctor *d)
{
    char path[64] = "/dev/nvidiactl";
    if (access(path, R_OK | W_OK) == 0)
        (void)snprintf(path, sizeof path, "/dev/nvidia%u", option_u32(d->o, OPT_GPU_DEVICE));
    if (access(path, R_OK | W_OK) == 0) {
        (void)doctor_find(d, "device files", FINDING_OK, "/dev/nvidiactl and %s can be used", path);
        return;
    }
    const bool missing = errno == ENOENT;
    struct finding *f = doctor_find(d, "device files", FINDING_ADVICE, "%s: %s%s", path, strerror(errno),
                                    missing ? "; a container needs the NVIDIA container toolkit and --gpus all" : "");
    if (missing)
        doctor_mend(f, "sudo nvidia-modprobe -c %u -u", option_u32(d->o, OPT_GPU_DEVICE));
    else
        doctor_mend(f, "sudo usermod -aG video,render $USER   # then log in again");
}

void doctor_driver(struct doctor *d)
{
    char bus[64], version[256];
    const bool loaded = first_line("/proc/driver/nvidia/version", version, sizeof version), there = find_gpu(bus);
    d->has_gpu = there || loaded;
    if (!d->has_gpu) {
        struct finding *f = doctor_find(d, "gpu", d->wants_gpu ? FINDING_ADVICE : FINDING_NOTE,
                                        "no NVIDIA GPU is to be seen: models run on the processor");
        if (d->wants_gpu) doctor_mend(f, "worker doctor --device cpu");
        return;
    }
    (void)doctor_find(d, "gpu", FINDING_OK, "an NVIDIA GPU%s%s", there ? " at PCI " : "", there ? bus : "");
    if (!loaded) {
        doctor_mend(doctor_find(d, "driver", FINDING_ADVICE, "the NVIDIA driver is not loaded"), "%s",
                    access("/usr/bin/ubuntu-drivers", X_OK) == 0
                        ? "sudo ubuntu-drivers install && sudo modprobe nvidia"
                        : "sudo apt-get install nvidia-driver && sudo modprobe nvidia");
        return;
    }
    (void)doctor_find(d, "driver", FINDING_OK, "%s", version);
    check_device_files(d);
}
