/* no_host.h: a host that has no options and no extensions, and drops what is logged: for architectures that are no
 * plugin's, and for checks that make hosts of their own from it. */
#ifndef CORE_PLUGIN_NO_HOST_H
#define CORE_PLUGIN_NO_HOST_H

#include <worker/abi.h>

extern const struct wk_host plugin_no_host; /* constant, so for every thread */

#endif
