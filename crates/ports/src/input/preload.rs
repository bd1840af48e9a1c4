//! Reads input into memory. It stops while the system still has memory for others, instead of being killed.

use thalweg_base::Chunk;

use super::{FileSource, InputError, InputReport};

/// What stays available for others.
const RESERVE_BYTES: u64 = 256 << 20;
/// Chunks between two questions: by default 25 MB at most.
const CHUNKS_PER_QUESTION: usize = 16;

impl FileSource {
    /// Reads everything into separate memory, trimmed to size for each chunk.
    pub fn load_all(self) -> Result<(Vec<Chunk>, InputReport), InputError> {
        self.load_first(u64::MAX)
    }

    /// [`Self::load_all`] for only as many chunks as this many packets need.
    pub fn load_first(self, packets: u64) -> Result<(Vec<Chunk>, InputReport), InputError> {
        self.load_while(packets, available_bytes)
    }

    /// `available` is the memory that the system has left, `None` if it does not say.
    pub(super) fn load_while(
        mut self,
        packets: u64,
        available: impl Fn() -> Option<u64>,
    ) -> Result<(Vec<Chunk>, InputReport), InputError> {
        self.chunks.keep_in_memory();
        let mut chunks = Vec::new();
        while self.packets() < packets {
            if chunks.len() % CHUNKS_PER_QUESTION == 0
                && let Some(left_bytes) = available().filter(|left| *left < RESERVE_BYTES)
            {
                return Err(InputError::LargerThanMemory { left_mib: left_bytes >> 20 });
            }
            let Some(chunk) = self.next_chunk()? else { break };
            chunks.push(chunk);
        }
        Ok((chunks, self.report()))
    }
}

/// Memory that a process can get without swapping.
fn available_bytes() -> Option<u64> {
    let system = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib = system.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    kib.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_system_says_what_is_available() {
        assert!(super::available_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
