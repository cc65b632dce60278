/* fake_driver.c: a libcuda.so.1 that answers for the GPUs of FAKE_GPUS ("90 86 75": compute capabilities), for tests of
 * what CMake makes of them. Without that variable it fails as a driver without a GPU does. */
#include <stdlib.h>
#include <string.h>

#define SHOWN __attribute__((visibility("default")))

enum { NO_DEVICE = 100, MAJOR = 75, MINOR = 76 };

SHOWN int cuInit(unsigned flags);
SHOWN int cuDeviceGetCount(int *n);
SHOWN int cuDeviceGetAttribute(int *value, int attribute, int device);

int cuInit(unsigned flags)
{
    (void)flags;
    return getenv("FAKE_GPUS") ? 0 : NO_DEVICE;
}
int cuDeviceGetCount(int *n)
{
    *n = 0;
    for (const char *p = getenv("FAKE_GPUS"); *p; p += strspn(p, " "), *n += 1) p += strcspn(p, " ");
    return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    const char *p = getenv("FAKE_GPUS");
    for (; device > 0; device--) p += strcspn(p, " "), p += strspn(p, " ");
    const long capability = strtol(p, NULL, 10);
    if (attribute != MAJOR && attribute != MINOR) return 1;
    *value = (int)(attribute == MAJOR ? capability / 10 : capability % 10);
    return 0;
}
