/* test_image: what the code that the device runs says of itself, in a build of PTX for 8.0 alone: any device assembles
 * it, also one that has clusters and wgmma; the code has neither. And in a build for 90a, on a device that runs it.
 * EXPECTED 0: machine code for 8.0 alone, and what a device that cannot run it is advised to build. */
#include <worker/cuda/image.cuh>
#include <worker/cuda/tiles.cuh>

#include "device/cuda/test_device.cuh"

static void test_image(void **state)
{
    (void)state;
    struct wk_image image;
    CUDA_OK(wk_image_read(&image));
    assert_int_equal(image.compute, EXPECTED);
    assert_int_equal(image.clusters, EXPECTED >= 90);
    assert_int_equal(image.wgmma, EXPECTED >= 90);
    int major = 0, minor = 0;
    CUDA_OK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    CUDA_OK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    assert_int_equal(image.ptx, 10 * major + minor > EXPECTED); /* neither build has an image for a later device */
    assert_int_equal(wk_built_for_wgmma(), EXPECTED >= 90);
}

/* The architecture that CMake takes for this device (cmake/WorkerGpu.cmake). */
static void test_advice(void **state)
{
    (void)state;
    int major = 0, minor = 0;
    char expected[64];
    CUDA_OK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    CUDA_OK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    if (major == 8) skip(); /* it runs there */
    (void)snprintf(expected, sizeof expected, "-DWORKER_CUDA_ARCHITECTURES=%d%d%s-real", major, minor,
                   major == 9 ? "a" : "");
    assert_int_equal(wk_check_image((const void *)wk_image_probe<0>, 0, "80-real", &error_text), WK_UNSUPPORTED);
    if (!strstr(error_memory, expected) || !strstr(error_memory, "the architectures 80-real"))
        fail_msg("%s expected: %s", expected, error_memory);
}

int main(void)
{
    struct wk_image image;
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_image) }, advice[] = { cmocka_unit_test(test_advice) };
    if (no_gpu()) return 77;
    if (!EXPECTED) return cmocka_run_group_tests(advice, NULL, NULL);
    if (wk_image_read(&image) == cudaErrorNoKernelImageForDevice) {
        (void)fprintf(stderr, "no GPU of compute capability %d here: skipped\n", EXPECTED);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
