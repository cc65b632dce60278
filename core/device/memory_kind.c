/* memory_kind.c: the names of the kinds of memory that a plan counts. */
#include "device/device.h"

const char *memory_kind_name(enum memory_kind kind)
{
    static const char *const names[MEMORY_KINDS] = { "weights", "kv", "activations", "workspace", "graphs" };
    return kind < MEMORY_KINDS ? names[kind] : "?";
}
