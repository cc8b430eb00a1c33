// attention.cl: attention forward in OpenCL, the algorithm of tests/bench/simt_speed.cu, for Oclgrind.
// One work-item per query row, Br 64 rows per group, K and V in local tiles of Bc 32 rows, D 64, fp32, online softmax.
// Run: simulators.py writes the .sim file that oclgrind-kernel needs.
#define BR 64
#define BC 32
#define D 64

kernel void attention(global const float* q, global const float* k, global const float* v, global float* o, int n,
                      float scale_log2) {
  local float k_tile[BC][D];
  local float v_tile[BC][D];
  const int t = get_local_id(0), row = get_group_id(0) * BR + t;
  float q_row[D], acc[D], s[BC];
  for (int d = 0; d < D; ++d) {
    q_row[d] = q[row * D + d] * scale_log2;
    acc[d] = 0.0f;
  }
  float m = -INFINITY, l = 0.0f;
  for (int k0 = 0; k0 < n; k0 += BC) {
    for (int j = 0; j < BC; ++j) {  // 64 work-items: one column each
      k_tile[j][t] = k[(k0 + j) * D + t];
      v_tile[j][t] = v[(k0 + j) * D + t];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float m_new = m;
    for (int j = 0; j < BC; ++j) {
      float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};  // four chains of additions, as there
      for (int d = 0; d < D; d += 4)
        for (int c = 0; c < 4; ++c) part[c] = fma(q_row[d + c], k_tile[j][d + c], part[c]);
      s[j] = (part[0] + part[1]) + (part[2] + part[3]);
      m_new = fmax(m_new, s[j]);
    }
    const float rescale = exp2(m - m_new);
    l *= rescale;
    for (int d = 0; d < D; ++d) acc[d] *= rescale;
    for (int j = 0; j < BC; ++j) {
      const float p = exp2(s[j] - m_new);
      l += p;
      for (int d = 0; d < D; ++d) acc[d] = fma(p, v_tile[j][d], acc[d]);
    }
    m = m_new;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (int d = 0; d < D; ++d) o[row * D + d] = acc[d] / l;
}
