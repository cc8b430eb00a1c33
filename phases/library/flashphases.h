/* flashphases.h: libflashphases, the kernels of the course for other programs: plain C, on a CUDA device.
 * O = softmax(Q K^T * scale) V and its gradients, on tensors in device memory, asynchronously on a stream.
 * On the CPU: the same by its definition, on tensors in the host's memory, with all that models ask for.
 * Use: example.c, beside this file, calls it from C; the package flashphases from Python; link with -lflashphases.
 */
#ifndef FLASHPHASES_H
#define FLASHPHASES_H

#include <stddef.h>
#include <stdint.h>

/* Of this header. Programs that were compiled with 0.1 or 0.2 run with any libflashphases.so.0.1, as it goes on being
 * called: structs grow at their end. */
#define FLASHPHASES_VERSION_MAJOR 0
#define FLASHPHASES_VERSION_MINOR 2

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
  FLASHPHASES_OUT_OF_MEMORY = 4, /* of the host */
  FLASHPHASES_FINDING = 5        /* the checked simulator has found something: flashphases_error() has its whole text */
};

enum flashphases_type { FLASHPHASES_FLOAT32 = 0, FLASHPHASES_FLOAT16 = 1, FLASHPHASES_BFLOAT16 = 2 };

/* Which keys j a query row i sees. */
enum flashphases_mask {
  FLASHPHASES_MASK_NONE = 0,           /* all */
  FLASHPHASES_CAUSAL_TOP_LEFT = 1,     /* j <= i            (PyTorch's is_causal) */
  FLASHPHASES_CAUSAL_BOTTOM_RIGHT = 2, /* j <= i + Sk - Sq  (flash-attn since 2.1) */
  FLASHPHASES_WINDOW_TOP_LEFT = 3,     /* i - window_left <= j <= i + window_right */
  FLASHPHASES_WINDOW_BOTTOM_RIGHT = 4  /* the same around i + Sk - Sq */
};

/* Where it is done. */
enum flashphases_machine {
  FLASHPHASES_GPU = 0, /* by a phase's kernel, on the current device */
  FLASHPHASES_CPU = 1, /* by the definition, before the call returns; pointers are the host's */
  /* By a phase's kernel on the simulator, before the call returns; pointers are the host's, there is no workspace, and
   * no stream is looked at. In libflashphases-simulated.so; the library without it refuses these. */
  FLASHPHASES_SIM = 2,
  FLASHPHASES_CHECKED = 3 /* and every access is checked: what is found is FLASHPHASES_FINDING, once per launch */
};
/* What flashphases_chosen_phase says of the definition. */
#define FLASHPHASES_DEFINITION (-1)

/* How dQ is summed over the keys. */
enum flashphases_mode {
  FLASHPHASES_DETERMINISTIC = 0, /* same input, same bits */
  FLASHPHASES_ATOMIC = 1         /* by atomic additions, in whatever order they come: faster */
};

/* A [B, H, S, D] tensor in device memory of the current device; in the host's on the CPU. Strides count elements, from
 * one batch entry, head, row to the next; D is contiguous. What is written overlaps neither itself nor the others. */
typedef struct flashphases_tensor {
  void* data; /* a multiple of the element's size; multiples of 16 bytes, strides too, are fastest */
  int64_t stride_b, stride_h, stride_s;
} flashphases_tensor;

/* The same of what is only read. Strides may be 0: heads that share K and V have stride_h = 0, and a bias that all
 * batch entries share has stride_b = 0. */
typedef struct flashphases_input {
  const void* data;
  int64_t stride_b, stride_h, stride_s;
} flashphases_input;

/* One problem. Zeros ask for the defaults and leave out what models ask for: flashphases_forward_args args = {0}; then
 * args.struct_size = sizeof args. Limits beside those below: B * H and the product with Hk at most 2^31 - 1, any extent
 * in memory less than 2^63 bytes; phases that copy by TMA (14 and later, on Hopper) take at most 2^30 rows, and only
 * bases and strides that are multiples of 16 bytes. */
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
  flashphases_input q;      /* [B, H, Sq, D] */
  flashphases_input k, v;   /* [B, Hk, Sk, D], [B, Hk, Sk, Dv] */
  flashphases_tensor o;     /* [B, H, Sq, Dv], is written; the backward pass reads it */
  float* lse;               /* [B, H, Sq] dense, is written: natural log; NULL: not wanted */

  /* Later fields: a program that knows only what stands above has a struct_size of 208. What they mean to the bit:
   * docs/conventions.md. Kernels that cannot do it refuse it by name; the CPU can do it all. */
  int32_t machine;                   /* enum flashphases_machine */
  int32_t threads;                   /* on the CPU and the simulator; 0: one for each core */
  int64_t Hk, Dv;                    /* heads of K and V, a divisor of H; columns of V and O; 0: H, D */
  int64_t window_left, window_right; /* of the masks that are windows: 0 or more, or -1 for all keys of that side */
  int32_t wide_output;               /* 1: O is float32, whatever type is */
  float softcap;                     /* more than 0: scores become softcap * tanh(score / softcap) */
  float dropout;                     /* the share of P that is left out; the rest counts more */
  uint64_t dropout_seed;
  flashphases_input slopes;       /* float32 [B, H], dense (stride_h is 1): ALiBi */
  flashphases_input bias;         /* [B, H, Sq, Sk], of type `type`: is added to the scores */
  flashphases_input bool_mask;    /* bytes [B, H, Sq, Sk]: 0 hides the key */
  flashphases_input doc_q, doc_k; /* int32 [B, Sq], [B, Sk], dense (stride_s is 1): a row sees its document's keys */
  flashphases_input block_mask;   /* bytes [B, H, Sq/64, Sk/64], rounded up: 0 hides all, 1 asks, 2 sees all */
  const float* sinks;             /* [H]: a logit that only the denominator sees */
  int64_t N;                      /* sequences, where cu_seqlens_q is given; else 0 */
  const int32_t* cu_seqlens_q;    /* [N + 1]: rows of sequence n are cu_seqlens_q[n] ... cu_seqlens_q[n + 1] - 1 */
  const int32_t* cu_seqlens_k;    /* its keys likewise; B is 1 then */
  const int32_t *seqused_q, *seqused_k; /* [N], or [B]: how many rows and keys of each there are */

  /* Since 0.2; a program of before has a struct_size of 512. */
  int64_t mask_shift; /* rows are so many further down than their numbers say: j <= i + mask_shift, …; 0 where
                                  * mask is FLASHPHASES_MASK_NONE */
  int32_t spare_multiprocessors; /* that the kernel leaves to others; 0: none. For kernels whose blocks stay: 17-19,
                                  * 24-29 */
  int32_t workspace_is_zero;     /* 1: the workspace is as the last call with these sizes left it, or 0: the library
                                  * need not clear its counters on the stream */
  float *m, *l;            /* [B, H, Sq] dense, are written for the backward pass: a row's largest logit times log2 e,
                                  * and the sum of exp2(logit * log2 e - m); both or neither */
  flashphases_tensor o_lo; /* int16 [B, H, Sq, Dv], is written: what rounding took from O; not where O is float32 */
} flashphases_forward_args;

/* The gradients of one forward call. With m, l and (of 16-bit types) o_lo they are precise to the bit that was rounded;
 * with LSE alone they are what other libraries have (docs/backward.md). K and V are all keys that the rows see: with the
 * LSE of more keys than these dQ would be wrong. */
typedef struct flashphases_backward_args {
  uint32_t struct_size;                    /* sizeof(flashphases_backward_args) */
  int32_t phase;                           /* 0: the one that was measured fastest; else its number; not forward's */
  int32_t mode;                            /* enum flashphases_mode */
  int32_t block_q, block_k;                /* 0: chosen by the phase; not forward's */
  int32_t workspace_is_zero;               /* as in flashphases_forward_args; not forward's */
  const flashphases_forward_args* forward; /* the call: its o, lse or m and l, o_lo are read as it has left them */
  flashphases_input dout;                  /* [B, H, Sq, Dv], of type `type` */
  const float* dlse;                       /* [B, H, Sq] dense; NULL: LSE has no gradient */
  flashphases_tensor dq;                   /* [B, H, Sq, D], is written, as what follows */
  flashphases_tensor dk, dv;               /* [B, Hk, Sk, D], [B, Hk, Sk, Dv] */
  flashphases_tensor dbias;                /* float32, with the strides of 0 that bias has; data NULL: not wanted */
  float* dsinks;                           /* [H]; NULL: not wanted */
} flashphases_backward_args;

/* Bytes of device memory that flashphases_forward needs beside the tensors: a counter for the phases that draw their
 * work from one, 0 for the others, on the CPU and on the simulator. Nobody need fill it. Calls that may run at a time
 * (on different streams) need one each. Arguments are checked as for the call itself. */
FLASHPHASES_API int flashphases_workspace(const flashphases_forward_args* args, size_t* bytes);

/* Enqueues the kernels on `stream` (a cudaStream_t; NULL: the default stream) of the current device and returns; it
 * neither waits nor allocates, so it may be captured into a graph. On the CPU and the simulator it returns when O is
 * there, and stream is not looked at. args may go once it has returned. `workspace` is device memory of at least the
 * bytes that were asked for, or NULL where that is 0. A row that sees no key gets O = 0 and LSE = -infinity. Threads
 * may call it at once. */
FLASHPHASES_API int flashphases_forward(const flashphases_forward_args* args, void* workspace, size_t workspace_bytes,
                                        void* stream);

/* The number of the phase that flashphases_forward runs for these arguments; on the CPU FLASHPHASES_DEFINITION. */
FLASHPHASES_API int flashphases_chosen_phase(const flashphases_forward_args* args, int32_t* phase);

/* The same three for the backward pass: dQ, dK, dV and what else args has room for. A row that sees no key has a gradient
 * of 0 and adds nothing to others. The workspace is larger, and begins at a multiple of 256 bytes. */
FLASHPHASES_API int flashphases_backward_workspace(const flashphases_backward_args* args, size_t* bytes);
FLASHPHASES_API int flashphases_backward(const flashphases_backward_args* args, void* workspace, size_t workspace_bytes,
                                         void* stream);
FLASHPHASES_API int flashphases_backward_chosen_phase(const flashphases_backward_args* args, int32_t* phase);

/* What a pass can do beside plain attention: bits of flashphases_pass.can. Causal masks, LSE, … are asked for by the
 * fields of the structs above. */
enum flashphases_can {
  FLASHPHASES_CAN_CAUSAL = 1 << 0,
  FLASHPHASES_CAN_WINDOW = 1 << 1,
  FLASHPHASES_CAN_LSE = 1 << 2,  /* write it; a backward pass reads it */
  FLASHPHASES_CAN_KEEP = 1 << 3, /* m, l and o_lo */
  FLASHPHASES_CAN_WIDE_OUTPUT = 1 << 4,
  FLASHPHASES_CAN_HK = 1 << 5,
  FLASHPHASES_CAN_DV = 1 << 6,
  FLASHPHASES_CAN_LENGTHS = 1 << 7, /* cu_seqlens, seqused */
  FLASHPHASES_CAN_SOFTCAP = 1 << 8,
  FLASHPHASES_CAN_SLOPES = 1 << 9,
  FLASHPHASES_CAN_BIAS = 1 << 10,
  FLASHPHASES_CAN_BOOL_MASK = 1 << 11,
  FLASHPHASES_CAN_DOCUMENTS = 1 << 12,
  FLASHPHASES_CAN_BLOCK_MASK = 1 << 13,
  FLASHPHASES_CAN_SINKS = 1 << 14,
  FLASHPHASES_CAN_DROPOUT = 1 << 15,
  FLASHPHASES_CAN_ANY_STRIDE = 1 << 16, /* without it: multiples of 16 bytes */
  FLASHPHASES_CAN_ATOMIC = 1 << 17,
  FLASHPHASES_CAN_SPARE = 1 << 18 /* spare_multiprocessors */
};

/* A phase in one direction; all 0: it has no such pass. */
typedef struct flashphases_pass {
  uint32_t types;                /* 1 << FLASHPHASES_FLOAT32, … */
  uint32_t can;                  /* enum flashphases_can */
  int32_t largest_D;             /* of D and Dv */
  int32_t capability;            /* the GPU's compute capability, 90 for 9.0; 0: none, it runs on the CPU */
  int32_t this_capability_alone; /* 1: on no later one either */
} flashphases_pass;

typedef struct flashphases_phase {
  uint32_t struct_size; /* sizeof(flashphases_phase); the rest is written */
  int32_t number;
  int32_t next;  /* the next phase's number, so that all can be listed from FLASHPHASES_DEFINITION on; 0: the last */
  char name[32]; /* its number and its idea */
  flashphases_pass forward, backward;
} flashphases_phase;

/* Describes the phase of this number, FLASHPHASES_DEFINITION too; of two (25 and 25m) that which the device runs. */
FLASHPHASES_API int flashphases_phase_info(int32_t number, flashphases_phase* phase);

/* One line about the calling thread's last call that did not return FLASHPHASES_OK: argument, value, limit, remedy; of
 * findings all their lines.
 * "" before the first. Valid until the thread's next such call. */
FLASHPHASES_API const char* flashphases_error(void);

/* Of the library: "0.2.0". */
FLASHPHASES_API const char* flashphases_version(void);

#ifdef __cplusplus
}
#endif

#endif
