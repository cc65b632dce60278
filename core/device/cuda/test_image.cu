/* test_image: what the code that the device runs says of itself, in a build of PTX for 8.0 alone: any device assembles
 * it, also one that has clusters and wgmma; the code has neither. And in a build for 90a, on a device that runs it. */
#include <worker/cuda/image.cuh>

#include "device/cuda/test_device.cuh"

static void test_image(void **state)
{
    (void)state;
    struct wk_image image;
    CUDA_OK(wk_image_read(&image));
    assert_int_equal(image.compute, EXPECTED);
    assert_int_equal(image.clusters, EXPECTED >= 90);
    assert_int_equal(image.wgmma, EXPECTED >= 90);
    assert_int_equal(wk_built_for_wgmma(), EXPECTED >= 90);
}

int main(void)
{
    struct wk_image image;
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_image) };
    if (no_gpu()) return 77;
    if (wk_image_read(&image) == cudaErrorNoKernelImageForDevice) {
        (void)fprintf(stderr, "no GPU of compute capability %d here: skipped\n", EXPECTED);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
