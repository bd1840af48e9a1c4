//! A capture as a download: blocks of a pcapng file, as the router sends them.

use std::io::{self, BufRead, Read};
use std::ops::ControlFlow;
use std::path::Path;

use thalweg_node::control::Request;
use thalweg_wire::pcapng::BLOCK_BYTES_MAX;

use crate::answer::Outlet;
use crate::problem::Problem;
use crate::router::Conversation;

/// Passes on a capture: the body of a thread.
pub(crate) fn capture(socket: &Path, request: &Request, mut outlet: Outlet) {
    let result = Conversation::open(socket).and_then(|mut router| {
        // The first item says that the capture runs; then come blocks.
        router.ask(request, &mut |_| ControlFlow::Break(()))?;
        loop {
            match block(&mut router)
                .map_err(|error| Problem::failed(format!("the capture broke off: {error}")))?
            {
                None => return Ok(()),
                Some(block) => {
                    let has_more = !router.reader().buffer().is_empty();
                    let written =
                        outlet.write(block).and_then(|()| if has_more { Ok(()) } else { outlet.flush() });
                    if written.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    });
    outlet.end(result);
}

/// The next block; `None` where the summary begins.
fn block(router: &mut Conversation) -> io::Result<Option<Vec<u8>>> {
    let reader = router.reader();
    match reader.fill_buf()? {
        [] => return Err(io::ErrorKind::UnexpectedEof.into()),
        [b'{', ..] => return Ok(None),
        _ => {}
    }
    let mut block = vec![0; 8];
    reader.read_exact(&mut block)?;
    let length = u32::from_le_bytes([block[4], block[5], block[6], block[7]]);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if !(12..=BLOCK_BYTES_MAX).contains(&length) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a block of no possible length"));
    }
    block.resize(length, 0);
    reader.read_exact(&mut block[8..])?;
    Ok(Some(block))
}
