// stub
#include "phases/common/cell.hpp"
CELL("x") {}
