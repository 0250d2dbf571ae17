//! Device memory: sizes and one value for each allocation.
//!
//! Owns the addresses. Nothing is stored, so that a client can fill a fake GPU on a small machine: an allocation
//! remembers the byte that it was last set to, and reads as that all over.

use std::collections::BTreeMap;

use crate::code::Code;

/// An address is no address of this process.
const FIRST: u64 = 0x7_0000_0000;
/// Allocations begin at multiples of this.
const ALIGNMENT: u64 = 512;

/// What was allocated, by address.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    allocations: BTreeMap<u64, Allocation>,
    next: u64,
}

#[derive(Debug)]
struct Allocation {
    device: usize,
    size: usize,
    byte: u8,
}

impl Memory {
    /// Allocates, where a device has so much `free`.
    pub(crate) fn alloc(&mut self, device: usize, size: usize, free: usize) -> Result<u64, Code> {
        if size == 0 {
            return Err(Code::INVALID_VALUE);
        }
        if size > free {
            return Err(Code::OUT_OF_MEMORY);
        }
        let address = self.next.max(FIRST);
        self.next = address + (size as u64).next_multiple_of(ALIGNMENT);
        self.allocations.insert(address, Allocation { device, size, byte: 0 });
        Ok(address)
    }

    /// Gives back what begins at an address; null is nothing.
    pub(crate) fn free(&mut self, address: u64) -> Result<(), Code> {
        if address == 0 {
            return Ok(());
        }
        self.allocations.remove(&address).map(|_| ()).ok_or(Code::INVALID_VALUE)
    }

    /// What is allocated on a device.
    pub(crate) fn used(&self, device: usize) -> usize {
        self.allocations.values().filter(|a| a.device == device).map(|a| a.size).sum()
    }

    /// The allocation that holds all of a range.
    fn holding(&mut self, address: u64, size: usize) -> Result<&mut Allocation, Code> {
        let (start, allocation) =
            self.allocations.range_mut(..=address).next_back().ok_or(Code::INVALID_VALUE)?;
        let end = (address - start).checked_add(size as u64);
        if end.is_some_and(|end| end <= allocation.size as u64) {
            Ok(allocation)
        } else {
            Err(Code::INVALID_VALUE)
        }
    }

    /// Sets a range, which sets the allocation.
    pub(crate) fn set(&mut self, address: u64, byte: u8, size: usize) -> Result<(), Code> {
        self.holding(address, size)?.byte = byte;
        Ok(())
    }

    /// The byte that a range reads as.
    pub(crate) fn read(&mut self, address: u64, size: usize) -> Result<u8, Code> {
        Ok(self.holding(address, size)?.byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_held_to_their_allocation() {
        let mut memory = Memory::default();
        let a = memory.alloc(0, 1000, 1000).expect("room");
        let b = memory.alloc(0, 24, 24).expect("room");
        assert_eq!(memory.alloc(0, 25, 24), Err(Code::OUT_OF_MEMORY));
        assert_eq!(memory.used(0), 1024);
        assert_eq!(memory.set(b + 4, 7, 20), Ok(()));
        assert_eq!(memory.set(b + 4, 8, 21), Err(Code::INVALID_VALUE));
        assert_eq!((memory.read(a, 1000), memory.read(b, 24)), (Ok(0), Ok(7)));
        assert_eq!((memory.free(a), memory.free(a), memory.used(0)), (Ok(()), Err(Code::INVALID_VALUE), 24));
    }
}
