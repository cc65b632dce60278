/* test_row.h: a row of the table of formats by its name, for tests. After cmocka.h. */
#ifndef CORE_TOOLS_TEST_ROW_H
#define CORE_TOOLS_TEST_ROW_H

#include <string.h>

#include "tools/tools.h"

static const struct tools_format *row(const char *name)
{
    size_t n;
    const struct tools_format *f = tools_formats(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(f[i].name, name) == 0) return &f[i];
    fail_msg("no row %s", name);
    return NULL;
}

#endif
