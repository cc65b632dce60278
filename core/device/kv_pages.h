/* kv_pages.h: how many pages each KV group has, worked out the same way for every device. */
#ifndef CORE_DEVICE_KV_PAGES_H
#define CORE_DEVICE_KV_PAGES_H

#include "device/device.h"

/* Pages of each group into out [n_groups], when a page of group g takes bytes[g], all its layers together. kv_bytes 0: all sequences at full length;
 * else as many as fit into kv_bytes, dealt to the groups as whole sequences need them. WK_INVALID: not one page of each; WK_NO_MEMORY: more than can be
 * counted. [any thread] */
wk_status kv_pages(const struct tape_program *p, const struct device_options *o, const uint64_t *bytes, uint32_t *out, const struct wk_err *err);

#endif
