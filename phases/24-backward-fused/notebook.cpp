// %% [markdown]
// # 24 · D = 256
#include <cstdio>
// %%
