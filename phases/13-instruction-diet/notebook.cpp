// %% [markdown]
// # 10 · Tensor cores

// %%
#include "phases/13-instruction-diet/phase.hpp"

#include <cstdio>

#include "phases/common/cell.hpp"

using namespace flash;
