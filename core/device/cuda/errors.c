/* errors.c: the codes of the runtime and the driver as texts, and which of them end the device's context. A context
 * that an error has ended stays ended: the flag is the process's, since it has one device. */
#include "device/cuda/context.h"

#include <pthread.h>
#include <stdatomic.h>

static _Atomic bool dead;
static char first_loss[400]; /* the text of the error that ended the context, under: */
static pthread_mutex_t loss_lock = PTHREAD_MUTEX_INITIALIZER;
static cudaStream_t live_stream; /* of the open device: asking it finds an error that nobody has seen yet; under: */
static pthread_mutex_t live_lock = PTHREAD_MUTEX_INITIALIZER; /* so that nobody asks a stream that is no more */

/* Codes after which the context goes on. Whatever is not here ends it: the runtime says so of 226, 700, 702, 710, 714
 * to 719, 721, 810 and 911, an uncorrectable memory error (214, 220) leaves wrong numbers behind, and a code that is
 * unknown today is not one to go on after. */
static bool survives(int code)
{
    switch (code) {
    case cudaSuccess:
    case cudaErrorInvalidValue:
    case cudaErrorMemoryAllocation:
    case cudaErrorInitializationError:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidPitchValue:
    case cudaErrorInvalidSymbol:
    case cudaErrorInvalidMemcpyDirection:
    case cudaErrorInsufficientDriver:
    case cudaErrorMissingConfiguration:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorInvalidKernelImage:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorIllegalState:
    case cudaErrorSymbolNotFound:
    case cudaErrorNotReady:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorHostMemoryAlreadyRegistered:
    case cudaErrorHostMemoryNotRegistered:
    case cudaErrorNotPermitted:
    case cudaErrorNotSupported:
    case cudaErrorPeerAccessUnsupported:
    case cudaErrorTooManyPeers:
    case cudaErrorMapBufferObjectFailed:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorOperatingSystem: return true;
    default:
        return code >= cudaErrorStreamCaptureUnsupported &&
               code <= cudaErrorCapturedEvent; /* a capture that failed, not the context */
    }
}

static wk_status fail_code(int code, const char *what, const char *name, const char *text, const struct wk_err *err)
{
    if (survives(code))
        return wk_fail(err, code == cudaErrorMemoryAllocation ? WK_NO_MEMORY : WK_INTERNAL, "%s: %s: %s", what, name,
                       text);
    /* Everything fails after the first: the first is the one to read. */
    (void)pthread_mutex_lock(&loss_lock);
    if (!first_loss[0])
        (void)snprintf(first_loss, sizeof first_loss,
                       "%s: %s: %s; the device's context is lost, the process has to end", what, name, text);
    (void)wk_fail(err, WK_INTERNAL, "%s", first_loss);
    (void)pthread_mutex_unlock(&loss_lock);
    atomic_store(&dead, true);
    return WK_INTERNAL;
}

wk_status cuda_check(struct cuda_device *d, int code, const char *what, const struct wk_err *err)
{
    (void)d;
    if (code == cudaSuccess) return WK_OK;
    if (survives(code)) (void)cudaGetLastError(); /* it is not to show up at the next call */
    return fail_code(code, what, cudaGetErrorName((cudaError_t)code), cudaGetErrorString((cudaError_t)code), err);
}

wk_status cuda_check_driver(struct cuda_device *d, CUresult code, const char *what, const struct wk_err *err)
{
    const char *name = "unknown error", *text = "";
    if (code == CUDA_SUCCESS) return WK_OK;
    (void)d->driver.error_name(code, &name);
    (void)d->driver.error_string(code, &text);
    return fail_code((int)code, what, name ? name : "unknown error", text ? text : "",
                     err); /* the two enumerations agree */
}

bool cuda_dead(void)
{
    if (atomic_load(&dead)) return true;
    (void)pthread_mutex_lock(&live_lock);
    if (live_stream && !survives(cudaStreamQuery(live_stream))) atomic_store(&dead, true);
    (void)pthread_mutex_unlock(&live_lock);
    return atomic_load(&dead);
}

void cuda_set_live(cudaStream_t stream)
{
    (void)pthread_mutex_lock(&live_lock);
    live_stream = stream;
    (void)pthread_mutex_unlock(&live_lock);
}

bool cuda_device_dead(const struct cuda_device *d)
{
    (void)d;
    return cuda_dead();
}
