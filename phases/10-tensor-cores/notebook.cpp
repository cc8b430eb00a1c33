// %% [markdown]
// # 10 · Tensor cores

// %%
#include "phases/10-tensor-cores/phase.hpp"

#include <cstdio>

#include "phases/common/cell.hpp"

using namespace flash;
