// %% [markdown]
// # 10 · Tensor cores

// %%
#include "phases/11-swizzle/phase.hpp"

#include <cstdio>

#include "phases/common/cell.hpp"

using namespace flash;
