// order.hpp: the schedules of the simulator. A header of its own, since every kernel file includes it.
// A correct kernel gives the same bits and the same counters under each. The GPU ignores it.
// Use: MachineOptions{.order = Order::random, .seed = 7}
#pragma once

namespace flash {

// In which order blocks run, and the threads that could run next.
enum class Order { forward, reverse, random };

}  // namespace flash
