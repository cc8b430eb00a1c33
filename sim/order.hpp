// order.hpp: what the simulator is free to choose. A header of its own, since every kernel file includes it.
// A correct kernel gives the same bits and the same counters whatever is chosen. The GPU chooses for itself.
// Use: MachineOptions{.order = Order::random, .seed = 7}
#pragma once

namespace flash {

// In which order blocks run, and the threads that could run next.
enum class Order { forward, reverse, random };

// When the bytes of an asynchronous copy arrive: as late as the program allows (when its thread waits for it), at once,
// or now and then.
enum class Completion { late, eager, random };

}  // namespace flash
