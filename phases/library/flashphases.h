/* flashphases.h: libflashphases, the kernels of the course for other programs: plain C, on a CUDA device.
 * O = softmax(Q K^T * scale) V on tensors in device memory, asynchronously on a stream; forward only, no backward pass.
 * On the CPU: the same by its definition, on tensors in the host's memory, with all that models ask for.
 * Use: example.c and flashphases.py, beside this file, call it from C and from PyTorch; link with -lflashphases.
 */
#ifndef FLASHPHASES_H
#define FLASHPHASES_H

#include <stddef.h>
#include <stdint.h>

/* Of this header. Programs that were compiled with 0.1 run with any libflashphases.so.0.1. */
#define FLASHPHASES_VERSION_MAJOR 0
#define FLASHPHASES_VERSION_MINOR 1

#ifdef __GNUC__
#define FLASHPHASES_API __attribute__((visibility("default")))
#else
#define FLASHPHASES_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What each call returns. Whatever is not FLASHPHASES_OK has enqueued nothing, and flashphases_error() says why. */
enum flashphases_status {
  FLASHPHASES_OK = 0,
  FLASHPHASES_BAD_ARGUMENT = 1, /* also: what no phase, or not the phase that was asked for, supports */
  FLASHPHASES_NO_GPU = 2,       /* built without CUDA, no device, or one that cannot run the phase */
  FLASHPHASES_CUDA_ERROR = 3,   /* the launch, or a query before it, failed */
  FLASHPHASES_OUT_OF_MEMORY = 4 /* of the host */
};

enum flashphases_type { FLASHPHASES_FLOAT32 = 0, FLASHPHASES_FLOAT16 = 1, FLASHPHASES_BFLOAT16 = 2 };

/* Which keys j a query row i sees. */
enum flashphases_mask {
  FLASHPHASES_MASK_NONE = 0,          /* all */
  FLASHPHASES_CAUSAL_TOP_LEFT = 1,    /* j <= i            (PyTorch's is_causal) */
  FLASHPHASES_CAUSAL_BOTTOM_RIGHT = 2, /* j <= i + Sk - Sq  (flash-attn since 2.1) */
  FLASHPHASES_WINDOW_TOP_LEFT = 3,     /* i - window_left <= j <= i + window_right */
  FLASHPHASES_WINDOW_BOTTOM_RIGHT = 4  /* the same around i + Sk - Sq */
};

/* Where it is done. */
enum flashphases_machine {
  FLASHPHASES_GPU = 0, /* by a phase's kernel, on the current device */
  FLASHPHASES_CPU = 1  /* by the definition, before the call returns; pointers are the host's */
};
/* What flashphases_chosen_phase says of the definition. */
#define FLASHPHASES_DEFINITION (-1)

/* A [B, H, S, D] tensor in device memory of the current device; in the host's on the CPU. Strides count elements, from
 * one batch entry, head, row to the next; D is contiguous. Strides of what is only read may be 0: heads that share K and
 * V have stride_h = 0, and a bias that all batch entries share has stride_b = 0. */
typedef struct flashphases_tensor {
  void* data; /* a multiple of the element's size; multiples of 16 bytes, strides too, are fastest */
  int64_t stride_b, stride_h, stride_s;
} flashphases_tensor;

/* One problem. Zeros ask for the defaults and leave out what models ask for, so begin with: flashphases_forward_args args = {sizeof args}; */
typedef struct flashphases_forward_args {
  uint32_t struct_size;     /* sizeof(flashphases_forward_args): later versions append fields */
  int32_t phase;            /* 0: the one that was measured fastest for these sizes; else its number, 5 or more; 25 is
                             * 25m where the GPU has no Hopper instructions */
  int32_t type;             /* enum flashphases_type, of Q, K, V and O */
  int32_t mask;             /* enum flashphases_mask */
  int32_t has_scale;        /* 0: scale is 1/sqrt(D), and the next field must be 0; 1: it is the next field */
  float scale;              /* any finite number */
  int32_t block_q, block_k; /* rows of a Q tile and of a K/V tile; 0: chosen by the phase */
  int64_t B, H, Sq, Sk, D;  /* batch, heads, query rows, keys: 0 or more; head dimension: 1 to 256 */
  flashphases_tensor q;     /* [B, H, Sq, D] */
  flashphases_tensor k, v;  /* [B, H, Sk, D] */
  flashphases_tensor o;     /* [B, H, Sq, D], is written; overlaps neither itself nor the others */
  float* lse;               /* [B, H, Sq] dense, is written: natural log; NULL: not wanted */

  /* Later fields: a program that knows only what stands above sets struct_size to 208. What they mean to the bit:
   * docs/conventions.md. Kernels that cannot do it refuse it by name; the CPU can do it all. */
  int32_t machine;                    /* enum flashphases_machine */
  int32_t threads;                    /* on the CPU; 0: one for each core */
  int64_t Hk, Dv;                     /* heads of K and V, a divisor of H; columns of V and O; 0: H, D */
  int64_t window_left, window_right;  /* of the masks that are windows: 0 or more, or -1 for all keys of that side */
  int32_t wide_output;                /* 1: O is float32, whatever type is */
  float softcap;                      /* more than 0: scores become softcap * tanh(score / softcap) */
  float dropout;                      /* the share of P that is left out; the rest counts more */
  uint64_t dropout_seed;
  flashphases_tensor slopes;          /* float32 [B, H], dense (stride_h is 1): ALiBi */
  flashphases_tensor bias;            /* [B, H, Sq, Sk], of type `type`: is added to the scores */
  flashphases_tensor bool_mask;       /* bytes [B, H, Sq, Sk]: 0 hides the key */
  flashphases_tensor doc_q, doc_k;    /* int32 [B, Sq], [B, Sk], dense (stride_s is 1): a row sees its document's keys */
  flashphases_tensor block_mask;      /* bytes [B, H, Sq/64, Sk/64], rounded up: 0 hides all, 1 asks, 2 sees all */
  const float* sinks;                 /* [H]: a logit that only the denominator sees */
  int64_t N;                          /* sequences, where cu_seqlens_q is given; else 0 */
  const int32_t* cu_seqlens_q;        /* [N + 1]: rows of sequence n are cu_seqlens_q[n] ... cu_seqlens_q[n + 1] - 1 */
  const int32_t* cu_seqlens_k;        /* its keys likewise; B is 1 then */
  const int32_t *seqused_q, *seqused_k; /* [N], or [B]: how many rows and keys of each there are */
} flashphases_forward_args;

/* Bytes of device memory that flashphases_forward needs beside the tensors: a counter for the phases that draw their
 * work from one, 0 for the others. The memory must be 0 before its first use; each call leaves it 0. Calls that may run
 * at a time (on different streams) need one each. Arguments are checked as for the call itself. */
FLASHPHASES_API int flashphases_workspace(const flashphases_forward_args* args, size_t* bytes);

/* Enqueues the kernels on `stream` (a cudaStream_t; NULL: the default stream) of the current device and returns; it
 * neither waits nor allocates, so it may be captured into a graph. On the CPU it returns when O is there, and stream is
 * not looked at. args may go once it has returned. `workspace` is
 * device memory of at least the bytes that were asked for, or NULL where that is 0. A row that sees no key gets O = 0
 * and LSE = -infinity. Threads may call it at once. */
FLASHPHASES_API int flashphases_forward(const flashphases_forward_args* args, void* workspace, size_t workspace_bytes,
                                        void* stream);

/* The number of the phase that flashphases_forward runs for these arguments; on the CPU FLASHPHASES_DEFINITION. */
FLASHPHASES_API int flashphases_chosen_phase(const flashphases_forward_args* args, int32_t* phase);

/* One line about the calling thread's last call that did not return FLASHPHASES_OK: argument, value, limit, remedy.
 * "" before the first. Valid until the thread's next such call. */
FLASHPHASES_API const char* flashphases_error(void);

/* Of the library: "0.1.0". */
FLASHPHASES_API const char* flashphases_version(void);

#ifdef __cplusplus
}
#endif

#endif
