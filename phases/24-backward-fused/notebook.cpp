// %% [markdown]
// # 24 · D = 256
//
// Provisional: what the page of phase 24 is to say about `wide.cuh`, with the count by which its design was chosen.
//
// **What is short.** dV and dK of 64 keys are 64 x 256 numbers each: 128 KB, half of a multiprocessor's registers. So a
// block cannot have 128 keys, and with 64 it adds 64 KB to dQ for each tile of 64 queries. The tile's five products
// take 5 · 512 = 2560 clocks. An H200 takes 3.5 to 3.8 TB/s of additions, about 16 bytes a clock from each
// multiprocessor: 64 KB are 4100 clocks. Additions would be the limit, whatever the products do.
//
// Clocks and bytes of shared memory (128 a clock) of a tile of 64 queries x 64 keys, by counting:
//
// | design | clocks of products | KB through shared memory | that in clocks | KB added to dQ |
// |---|---|---|---|---|
// | both warpgroups make all of S and dP | 3584 | 440 | 3520 | 64 |
// | each makes S and dP of half of the queries (n = 32) | 3072 | 416 | 3328 | 64 |
// | one makes S, P, dV, the other dP, dS, dK; both half of dQ | 2560 | 328 | 2624 | 64 |
// | the same by pairs of blocks, half of dQ's columns each (240 KB: does not fit) | 2560 | 360 | 2880 | 32 |
// | with half of K's and V's columns in registers | 2560 | 328 | 2624 | 32 |
//
// The last is what the kernel does. P and dS pass once through shared memory, in the same place. Two blocks of a
// cluster send each other dS, 8 KB a tile; then each makes half of dQ's columns out of 128 keys, so that a pair adds
// 64 KB where two blocks would add 128. As they walk over the same Q tiles anyway, each loads half of a tile for both.
//
// Registers of a lane: 128 for dV or dK, 32 for S or dP and after them dQ, 32 for what is kept of K or V, 16 for P or
// dS as operands: 208 of 240. Shared memory: K 32, the other's K 16, V 16, Q and dO 2 x 64, dS 2 x 16 KB: 224 KB.
//
// **P in 16 bits.** dS = P ∘ (dP - δ) wants a better P than the rounded one that multiplies dO. P goes over as fp16
// times 2^15: 11 bits down to 2^-29, in as many bytes.
//
// **Predicted** 420 to 460 TFLOP/s without pairs. **Measured** on an H200, bf16, B · N = 16384, H · D = 2048, all
// kernels of a pass, medians of seven rounds in one process: TFLOP/s, and over cuDNN in the same rounds.
//
// | N | 512 | 2048 | 8192 | 16384 | geometric mean |
// |---|---|---|---|---|---|
// | no mask | 281 (1.28) | 499 (1.44) | 578 (1.64) | 574 (1.68) | 1.50 |
// | causal | 175 (1.10) | 389 (1.35) | 552 (1.45) | 583 (1.56) | 1.355 |
//
// What was tried beside it, in ratios to cuDNN (geometric means of N 512, 2048, 8192, 16384; no mask, causal):
//
// | try | ratio | beside |
// |---|---|---|
// | dQ begins with S and dP, under the work on P and dS, not behind it | 1.435, 1.283 | 1.479, 1.311 |
// | dK before dQ, dQ leaves after both | 1.401, 1.251 | 1.435, 1.283 |
// | Q and dO loaded by each block for itself | 1.457, 1.321 | 1.482, 1.322 |
// | half of K in registers, too | 1.493, 1.347 | 1.482, 1.322 |
// | rows of dS not summed (a wrong kernel: what the sums cost) | 1.540, 1.371 | 1.482, 1.322 |
// | rows of dS summed by two idle warps, without mma (six lengths) | 1.462, 1.319 | 1.499, 1.348 |
// | K of the other block loaded behind V (six lengths) | 1.450, 1.315 | 1.462, 1.319 |
//
// Three quarters of K and V in registers do not fit (C7512). The kernels before and behind take 165 µs at every N, 28 %
// of the time at N = 512.
// %%
