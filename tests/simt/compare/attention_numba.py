# attention_numba.py: attention forward for numba's CUDA simulator, the algorithm of tests/bench/simt_speed.cu.
# One thread per query row, Br 64 rows per block, K and V in shared tiles of Bc 32 rows, D 64, fp32, online softmax.
# Run: simulators.py imports it with NUMBA_ENABLE_CUDASIM=1.
import math

import numpy
from numba import __version__ as numba_version
from numba import cuda, float32

BR, BC, D = 64, 32, 64


@cuda.jit
def attention(q, k, v, o, n, scale_log2):
    # One array per line: the simulator tells shared arrays apart by their line.
    k_tile = cuda.shared.array((BC, D), float32)
    v_tile = cuda.shared.array((BC, D), float32)
    t = cuda.threadIdx.x
    row = cuda.blockIdx.x * BR + t
    q_row = cuda.local.array(D, float32)
    acc = cuda.local.array(D, float32)
    s = cuda.local.array(BC, float32)
    part = cuda.local.array(4, float32)
    for d in range(D):
        q_row[d] = q[row, d] * scale_log2
        acc[d] = 0
    m = numpy.float32(-math.inf)
    l = numpy.float32(0)
    for k0 in range(0, n, BC):
        for j in range(BC):  # 64 threads: one column each
            k_tile[j, t] = k[k0 + j, t]
            v_tile[j, t] = v[k0 + j, t]
        cuda.syncthreads()
        m_new = m
        for j in range(BC):
            for c in range(4):  # four chains of additions, as there
                part[c] = 0
            for d in range(0, D, 4):
                for c in range(4):
                    part[c] += q_row[d + c] * k_tile[j, d + c]
            s[j] = (part[0] + part[1]) + (part[2] + part[3])
            m_new = max(m_new, s[j])
        rescale = math.pow(2.0, m - m_new)
        l *= rescale
        for d in range(D):
            acc[d] *= rescale
        for j in range(BC):
            p = math.pow(2.0, s[j] - m_new)
            l += p
            for d in range(D):
                acc[d] += p * v_tile[j, d]
        m = m_new
        cuda.syncthreads()
    for d in range(D):
        o[row, d] = acc[d] / l


def forward(q, k, v, scale_log2):
    n = q.shape[0]
    o = cuda.to_device(numpy.zeros_like(q))
    attention[n // BR, BR](cuda.to_device(q), cuda.to_device(k), cuda.to_device(v), o, n, numpy.float32(scale_log2))
    return o.copy_to_host()
