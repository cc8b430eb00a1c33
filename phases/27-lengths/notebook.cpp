// Page 27.
#include "phases/pages/cell.hpp"
