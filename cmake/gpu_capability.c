/* gpu_capability.c: run while CMake configures: prints the compute capability of each GPU that the driver answers for,
 * one a line (90 for 9.0). Nothing of CUDA is needed to compile it. Exit status 1: there is no driver or no GPU. */
#include <dlfcn.h>
#include <stdio.h>

typedef int driver_call(int);
typedef int get_count(int *);
typedef int get_attribute(int *, int, int);

enum { MAJOR = 75, MINOR = 76 }; /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR */

int main(void)
{
    int n = 0, printed = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 1;
    driver_call *init = (driver_call *)dlsym(driver, "cuInit");
    get_count *count = (get_count *)dlsym(driver, "cuDeviceGetCount");
    get_attribute *attribute = (get_attribute *)dlsym(driver, "cuDeviceGetAttribute");
    if (!init || !count || !attribute || init(0) || count(&n)) return 1;
    for (int i = 0; i < n; i++) {
        int major, minor;
        if (attribute(&major, MAJOR, i) || attribute(&minor, MINOR, i)) continue;
        (void)printf("%d%d\n", major, minor);
        printed++;
    }
    return printed == 0;
}
