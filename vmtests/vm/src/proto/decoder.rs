//! Frames out of a stream of bytes that comes in pieces of any size.
use super::{Frame, Garbage, MAX_FRAME};

/// Collects bytes until they make a frame.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// How much of `bytes` was taken already.
    taken: usize,
}

impl Decoder {
    /// An empty one, at the start of a frame.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// More bytes from the port.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next frame, when all of it has come.
    ///
    /// # Errors
    ///
    /// [`Garbage`] when the next bytes are no frame. The same again from then on.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, Garbage> {
        let rest = self.bytes.get(self.taken..).unwrap_or_default();
        let Some((length, rest)) = rest.split_first_chunk() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length);
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        if size == 0 || size > MAX_FRAME {
            return Err(Garbage::Length(length));
        }
        let Some((frame, _)) = rest.split_at_checked(size) else {
            return Ok(None);
        };
        match postcard::take_from_bytes(frame) {
            Ok((frame, [])) => {
                self.taken += 4 + size;
                Ok(Some(frame))
            }
            _ => Err(Garbage::Body),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Ending, Exit, Hello, Run};
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    fn os_string() -> impl Strategy<Value = OsString> {
        vec(any::<u8>(), 0..20).prop_map(OsString::from_vec)
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        vec(any::<u8>(), 0..100)
    }

    fn run() -> impl Strategy<Value = Run> {
        (
            vec(os_string(), 0..4),
            os_string(),
            vec((os_string(), os_string()), 0..4),
            any::<u64>(),
        )
            .prop_map(|(argv, cwd, env, deadline_ms)| Run {
                argv,
                cwd,
                env,
                deadline_ms,
            })
    }

    fn ending() -> impl Strategy<Value = Ending> {
        prop_oneof![
            any::<i32>().prop_map(Ending::Status),
            any::<i32>().prop_map(Ending::Signal),
            Just(Ending::TimedOut),
        ]
    }

    fn frame() -> impl Strategy<Value = Frame> {
        prop_oneof![
            any::<(u64, [u8; 32])>()
                .prop_map(|(unix_nanos, seed)| Frame::Sync { unix_nanos, seed }),
            run().prop_map(Frame::Run),
            os_string().prop_map(Frame::Get),
            Just(Frame::Dmesg),
            Just(Frame::Park),
            (any::<u32>(), any::<String>(), vec(any::<String>(), 0..3)).prop_map(
                |(version, release, notes)| Frame::Hello(Hello {
                    version,
                    release,
                    notes
                })
            ),
            bytes().prop_map(Frame::Out),
            bytes().prop_map(Frame::Err),
            (ending(), any::<String>())
                .prop_map(|(ending, kernel_log)| Frame::Exit(Exit { ending, kernel_log })),
            (bytes(), any::<bool>()).prop_map(|(bytes, is_last)| Frame::Piece { bytes, is_last }),
            any::<String>().prop_map(Frame::Log),
            Just(Frame::Done),
            any::<String>().prop_map(Frame::Failed),
        ]
    }

    proptest! {
        #[test]
        fn what_was_sent_arrives_however_it_is_cut(
            frames in vec(frame(), 1..6), sizes in vec(1usize..50, 1..20)
        ) {
            let sent: Vec<u8> = frames.iter().flat_map(|f| f.encode().unwrap()).collect();
            let (mut decoder, mut received, mut rest) = (Decoder::new(), Vec::new(), &sent[..]);
            for size in sizes.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, after) = rest.split_at((*size).min(rest.len()));
                rest = after;
                decoder.push(piece);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    received.push(frame);
                }
            }
            prop_assert_eq!(received, frames);
        }

        #[test]
        fn any_bytes_are_frames_or_garbage_and_never_a_panic(pieces in vec(bytes(), 0..10)) {
            let mut decoder = Decoder::new();
            for piece in &pieces {
                decoder.push(piece);
                while let Ok(Some(_)) = decoder.next_frame() {}
            }
        }

        #[test]
        fn a_changed_byte_is_never_a_panic(
            frame in frame(), at in any::<prop::sample::Index>(), value in any::<u8>()
        ) {
            let mut sent = frame.encode().unwrap();
            let at = at.index(sent.len());
            sent[at] = value;
            let mut decoder = Decoder::new();
            decoder.push(&sent);
            while let Ok(Some(_)) = decoder.next_frame() {}
        }
    }

    #[test]
    fn a_length_out_of_bounds_is_refused_before_its_bytes_come() {
        let mut decoder = Decoder::new();
        decoder.push(&u32::MAX.to_le_bytes());
        assert_eq!(decoder.next_frame(), Err(Garbage::Length(u32::MAX)));
        let mut decoder = Decoder::new();
        decoder.push(&[0; 4]);
        assert_eq!(decoder.next_frame(), Err(Garbage::Length(0)));
    }

    #[test]
    fn bytes_after_a_body_are_refused() {
        let mut decoder = Decoder::new();
        let mut done = Frame::Done.encode().unwrap();
        done[0] += 1;
        done.push(0);
        decoder.push(&done);
        assert_eq!(decoder.next_frame(), Err(Garbage::Body));
        let mut decoder = Decoder::new();
        decoder.push(&[1, 0, 0, 0, 99]);
        assert_eq!(decoder.next_frame(), Err(Garbage::Body));
    }

    #[test]
    fn a_frame_that_the_other_side_would_refuse_is_not_sent() {
        let log = |size: usize| Frame::Log("x".repeat(size)).encode();
        let front = 4; // the variant, and three bytes of length
        assert_eq!(log(MAX_FRAME - front).unwrap().len(), 4 + MAX_FRAME);
        let longer = Garbage::Length(u32::try_from(MAX_FRAME).unwrap() + 1);
        assert_eq!(log(MAX_FRAME - front + 1), Err(longer));
    }

    #[test]
    fn the_wire_is_as_documented() {
        let frame = Frame::Exit(Exit {
            ending: Ending::Signal(9),
            kernel_log: "x".into(),
        });
        #[rustfmt::skip]
        let bytes = [
            5, 0, 0, 0,  // length
            8,           // Exit, the ninth of the frames
            1, 18,       // by signal 9, as a zigzag number
            1, b'x',     // log
        ];
        assert_eq!(frame.encode().unwrap(), bytes);
    }
}
