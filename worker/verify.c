/* verify.c: `worker verify`: loads a model onto a GPU, waits until it is sealed, and proves that what lies there is
 * what the file holds. On the CPU weights stay in the file, so all there is to say is their digest. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "errors.h"
#include "json_out.h"
#include "setup.h"

static int print_text(const struct opened *x, const char *digest)
{
    struct shard_handle h;
    char id[128], device[DEVICE_TEXT];
    x->model->device->handle(x->model->executor, &h);
    shard_id(x, &h, id);
    (void)printf("%-14s %s\n%-14s %s\n%-14s %" PRIu64 " bytes\n%-14s %s, %s\n%-14s %s\n%-14s %s\n", "shard", id,
                 "device", opened_device(x, device), "memory", h.vram_bytes, "sealed", h.sealed ? "yes" : "no",
                 h.write_protected ? "write-protected" : "write protection not enforced by this driver", "digest",
                 h.digest, "from device", digest);
    return EXIT_DONE;
}

static int print_json(const struct opened *x, const char *path, const char *digest)
{
    struct shard_handle h;
    json_t *handle = opened_handle(x, path);
    x->model->device->handle(x->model->executor, &h);
    return json_print(handle ? json_pack("{s:o, s:s, s:s, s:o, s:b}", "handle", handle, "digest", h.digest,
                                         "device_digest", digest, "model_ref", json_bytes(path, strlen(path)),
                                         "resident", true)
                             : NULL);
}

static int verify(const struct options *o, const struct opened *x, const char *path)
{
    const struct model *m = x->model;
    struct shard_handle h;
    char digest[65];
    ERROR_TEXT(err);
    wk_status status = m->device->seal(m->executor, &err);
    if (status) return fail_status(STAGE_MODEL, status, &err);
    status = m->device->verify(m->executor, digest, &err);
    if (!status) status = m->device->residency(m->executor, &err);
    if (status) return fail_status(STAGE_STEP, status, &err);
    int result = option_flag(o, OPT_JSON) ? print_json(x, path, digest) : print_text(x, digest);
    m->device->handle(m->executor, &h);
    if (!result && strcmp(h.digest, digest) != 0)
        result = fail(CODE_VRAM_RESIDENCY_FAILED,
                      "%s: the weights on GPU %u have digest %s, the file's is %s: the file changed while it was read, "
                      "or the device's memory is damaged",
                      path, h.gpu_device, digest, h.digest);
    return result;
}

/* The digest as --digest demands it, and no handle: there is no memory of the model's own. */
static int verify_file(const struct options *o, const struct opened *x, const char *path)
{
    const struct model *m = x->model;
    char digest[65], device[DEVICE_TEXT];
    ERROR_TEXT(err);
    (void)snprintf(digest, sizeof digest, "%s", m->digest);
    wk_status status = digest[0] ? WK_OK : model_digest(m, NULL, digest, &err);
    if (status) return refuse_model(status, path, err_text);
    if (option_flag(o, OPT_JSON))
        return json_print(json_pack("{s:n, s:s, s:o, s:b}", "handle", "digest", digest, "model_ref",
                                    json_bytes(path, strlen(path)), "resident", false));
    (void)printf("%-14s %s\n%-14s %s\n%-14s %s\n", "model", path, "device", opened_device(x, device), "digest", digest);
    return EXIT_DONE;
}

int command_verify(const struct options *o)
{
    const char *path = option_text(o, OPT_MODEL) ? option_text(o, OPT_MODEL) : "embedded model";
    struct opened x = { 0 };
    int result =
        open_model(o, &(struct model_needs){ .max_rows = STEP_ROWS_BEST, .max_logits_rows = 1, .load = true }, &x);
    if (!result) result = x.model->device->handle ? verify(o, &x, path) : verify_file(o, &x, path);
    opened_close(&x);
    return result;
}
