/* no_host.c: the host for what is no plugin's: see no_host.h. */
#include "plugin/no_host.h"

#include <stddef.h>

static void no_log(void *self, uint32_t level, const char *text)
{
    (void)self;
    (void)level;
    (void)text;
}

static const char *no_option(void *self, const char *key)
{
    (void)self;
    (void)key;
    return NULL;
}

static const void *no_extension(void *self, const char *id)
{
    (void)self;
    (void)id;
    return NULL;
}

const struct wk_host plugin_no_host = { .struct_size = sizeof plugin_no_host,
                                        .abi_minor = WK_ABI_MINOR,
                                        .log = no_log,
                                        .option = no_option,
                                        .extension = no_extension };
