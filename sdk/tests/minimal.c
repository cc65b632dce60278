/* minimal.c: the smallest architecture plugin, in the words that C11 to C++20 share. */
#include <worker/plugin.h>

static const struct wk_key keys[] = { { "embedding_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, 4096, 0 } };
static const char *const names[] = { "minimal" };
static uint32_t width;

static wk_status minimal_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    (void)err;
    width = wk_meta_u32(meta, 0);
    *model = &width;
    return WK_OK;
}

static void minimal_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    wk_logits(b, wk_linear(b, wk_embed(b, "token_embd", 16, width), "output", 16, WK_NONE));
}

static void minimal_close(void *model) { (void)model; }

static const struct wk_arch arch = { .struct_size = sizeof(struct wk_arch),
                                     WK_ARCH_NAMES(names),
                                     WK_ARCH_KEYS(keys),
                                     .open = minimal_open,
                                     .record = minimal_record,
                                     .close = minimal_close };

WORKER_PLUGIN(WK_KIND_ARCH, "org.example.minimal", "arch:minimal", .name = "minimal", .version = "1.0", .arch = &arch);
