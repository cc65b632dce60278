/* fake_device.c: a device-cuda.so that computes on the CPU and fails as WORKER_FAKE says: what the program does about a
 * device's faults can then be tested where there is no GPU. For tests alone. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <worker/plugin.h>

#include "device/device.h"
#include "gguf/guard.h"
#include "plugin/call.h"

static atomic_bool is_dead; /* read by any thread */

static bool told(const char *fault)
{
    const char *all = getenv("WORKER_FAKE");
    return all && strcmp(all, fault) == 0;
}

static wk_status lose(const struct wk_err *err, const char *what)
{
    is_dead = true;
    return wk_fail(err, WK_INTERNAL,
                   "%s: cudaErrorIllegalAddress: an illegal memory access was encountered; the device's context is "
                   "lost, the process has to end",
                   what);
}

/* A driver that never returns. */
static void hang_if_told(const char *fault)
{
    while (told(fault)) (void)pause();
}

static bool dead(void) { return is_dead; }

static wk_status probe(uint32_t gpu, struct device_info *out, const struct wk_err *err)
{
    *out =
        (struct device_info){ .name = "Fake GPU", .index = gpu, .count = 2, .major = 9, .memory = (uint64_t)8 << 30 };
    hang_if_told("hangs-in-probe");
    if (told("no-driver")) return wk_fail(err, WK_UNSUPPORTED, "device cuda: no NVIDIA driver here");
    return gpu < 2 ? WK_OK
                   : wk_fail(err, WK_INVALID, "device cuda: there is no GPU %u: this machine has 2, GPU 0 to 1", gpu);
}

static void crash(void) { abort(); } /* what a lost device's driver may do at exit */

static void warm(uint32_t gpu)
{
    (void)gpu;
    if (told("lost-in-step")) (void)atexit(crash);
}

static wk_status device_memory(uint32_t gpu, struct device_memory *out, const struct wk_err *err)
{
    (void)gpu;
    *out = (struct device_memory){ .total = (uint64_t)8 << 30, .free = told("full") ? 1000 : (uint64_t)7 << 30 };
    return told("lost-at-once") ? lose(err, "context") : WK_OK;
}

static wk_status open_fake(const struct tape_program *program, const struct model_weights *weights,
                           const struct device_options *o, struct executor **out, const struct wk_err *err)
{
    *out = NULL;
    if (told("lost-in-upload")) return lose(err, "upload");
    hang_if_told("hangs-in-open");
    if (told("no-memory"))
        return wk_fail(err, WK_NO_MEMORY,
                       "kv: required 4096 bytes more, available 1000 of 8589934592 on GPU 0 (Fake GPU)");
    if (told("digest"))
        return wk_fail(err, WK_INVALID, "the weights' digest is 1, 2 was demanded: another model, or a damaged file");
    for (int i = 0; i <= 10; i++) o->progress(o->progress_user, i / 10.0);
    return device_cpu()->open(program, weights, o, out, err);
}

static wk_status step(struct executor *x, struct step *s, const struct wk_err *err)
{
    return told("lost-in-step") ? lose(err, "step") : device_cpu()->step(x, s, err);
}
static wk_status submit(struct executor *x, const struct step *s, const struct wk_err *err)
{
    return told("lost-in-step") ? lose(err, "step") : device_cpu()->submit(x, s, err);
}
static wk_status collect(struct executor *x, struct step_ids *out, const struct wk_err *err)
{
    return told("lost-in-collect") ? lose(err, "collect") : device_cpu()->collect(x, out, err);
}

/* "digest-after:PATH": one of 64 digits, as real ones are, which is not known before there is such a file. */
static const char *digest(void)
{
    static const char after[] = "digest-after:";
    const char *all = getenv("WORKER_FAKE");
    if (!all || strncmp(all, after, sizeof after - 1) != 0) return "00ff";
    return access(all + sizeof after - 1, F_OK) ? ""
                                                : "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
}

static void handle(const struct executor *x, struct shard_handle *out)
{
    struct memory_plan used;
    device_cpu()->memory(x, &used);
    *out = (struct shard_handle){
        .vram_bytes = used.total, .sealed = !told("unsealed"), .write_protected = true, .total_shards = 1
    };
    (void)strcpy(out->digest, digest());
}

static uint32_t ptx(const struct executor *x)
{
    (void)x;
    return told("ptx") ? 80 : 0;
}

static wk_status seal(struct executor *x, const struct wk_err *err)
{
    (void)x;
    return told("unsealed")
               ? wk_fail(err, WK_IO, "the model file became shorter or its storage failed while it was read")
               : WK_OK;
}

static wk_status verify(struct executor *x, char digest[65], const struct wk_err *err)
{
    (void)x;
    memcpy(digest, told("damaged") ? "00fe" : "00ff", 5);
    return told("lost-in-verify") ? lose(err, "verify") : WK_OK;
}

static void close_fake(struct executor *x)
{
    hang_if_told("hangs-in-close");
    device_cpu()->close(x);
}

static wk_status residency(struct executor *x, const struct wk_err *err)
{
    static int looks;
    (void)x;
    if (told("host-page-later") && looks++ == 0) return WK_OK;
    return told("host-page") || told("host-page-later")
               ? wk_fail(err, WK_INTERNAL, "weights: byte 2097152 is host memory, not device memory")
               : WK_OK;
}

static wk_status start(const struct plugin_calls *calls, const struct wk_err *err)
{
    plugin_calls_pass_to(calls);
    return gguf_guard_install(err);
}

static struct device_ops ops;

/* The CPU's operations but for those that can be told to fail. */
__attribute__((constructor)) static void make_ops(void)
{
    ops = *device_cpu();
    ops.name = "cuda";
    ops.probe = probe;
    ops.warm = warm;
    ops.device_memory = device_memory;
    ops.open = open_fake;
    ops.close = close_fake;
    ops.step = step;
    ops.submit = submit;
    ops.collect = collect;
    ops.handle = handle;
    ops.ptx = ptx;
    ops.seal = seal;
    ops.verify = verify;
    ops.residency = residency;
    ops.dead = dead;
}

WK_EXPORT extern const struct device_module worker_device_cuda_v0;
const struct device_module worker_device_cuda_v0 = {
    .struct_size = sizeof(struct device_module),
    .ops_size = sizeof(struct device_ops),
    .version = WORKER_VERSION,
    .layout = WK_LAYOUT_CUDA,
    .ops = &ops,
    .start = start,
};
