// %% [markdown]
// # 10 · Tensor cores

// %%
#include "phases/12-async-copies/phase.hpp"

#include <cstdio>

#include "phases/common/cell.hpp"

using namespace flash;
