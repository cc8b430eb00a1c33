// %% [markdown]
// # 24 · Fused

// %% tags=["hide-input"]
#include "phases/24-backward-fused/phase.hpp"
