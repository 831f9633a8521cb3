// SPDX-License-Identifier: Apache-2.0
// The most floating-point operations that a core can do: multiply-adds in registers alone, measured on the calling thread in its
// own CPU time, so that other work on the machine does not count. What MFU is a part of.
#pragma once

namespace mm::ops {

// In operations a second, for elements of `bytes` (4 or 8). Takes some 10 ms.
double fma_peak(int bytes);

}  // namespace mm::ops
