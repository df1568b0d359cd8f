//! Tests of the encoding of frames.
use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// A reader that returns its content in pieces of these sizes, as a port does.
struct Cut<'a, S>(&'a [u8], S);

impl<'a, S: Iterator<Item = &'a usize>> Read for Cut<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = (*self.1.next().unwrap()).min(buffer.len());
        self.0.read(&mut buffer[..size])
    }
}

fn error(mut bytes: &[u8]) -> String {
    Frame::read(&mut bytes).unwrap_err().to_string()
}

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
        any::<(u64, [u8; 32])>().prop_map(|(unix_nanos, seed)| Frame::Sync { unix_nanos, seed }),
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
        (any::<bool>(), bytes()).prop_map(|(is_out, bytes)| {
            let stream = if is_out { Stream::Out } else { Stream::Err };
            Frame::Output(stream, bytes)
        }),
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
        let mut port = Cut(&sent, sizes.iter().cycle());
        let received: Vec<_> = frames.iter().map(|_| Frame::read(&mut port).unwrap()).collect();
        prop_assert_eq!(received, frames);
        prop_assert_eq!(Frame::read(&mut port).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn any_bytes_are_frames_or_garbage_and_never_a_panic(pieces in vec(bytes(), 0..10)) {
        let bytes = pieces.concat();
        let mut port = &bytes[..];
        while Frame::read(&mut port).is_ok() {}
    }

    #[test]
    fn a_changed_byte_is_never_a_panic(
        frame in frame(), at in any::<prop::sample::Index>(), value in any::<u8>()
    ) {
        let mut sent = frame.encode().unwrap();
        let at = at.index(sent.len());
        sent[at] = value;
        let mut port = &sent[..];
        while Frame::read(&mut port).is_ok() {}
    }
}

#[test]
fn a_length_out_of_bounds_is_refused_before_its_bytes_come() {
    assert_eq!(
        error(&u32::MAX.to_le_bytes()),
        "a frame of 4294967295 bytes"
    );
    assert_eq!(error(&[0; 4]), "a frame of 0 bytes");
}

#[test]
fn bytes_after_a_body_are_refused() {
    let mut done = Frame::Done.encode().unwrap();
    done[0] += 1;
    done.push(0);
    assert_eq!(error(&done), "a broken frame");
    assert_eq!(error(&[1, 0, 0, 0, 99]), "a broken frame");
}

#[test]
fn a_frame_that_the_other_side_would_refuse_is_not_sent() {
    let log = |size: usize| Frame::Log("x".repeat(size)).encode();
    let front = 4; // the variant, and three bytes of length
    assert_eq!(log(MAX_FRAME - front).unwrap().len(), 4 + MAX_FRAME);
    let longer = log(MAX_FRAME - front + 1).unwrap_err().to_string();
    assert_eq!(longer, format!("a frame of {} bytes", MAX_FRAME + 1));
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
        7,           // Exit, the eighth of the frames
        1, 18,       // by signal 9, as a zigzag number
        1, b'x',     // log
    ];
    assert_eq!(frame.encode().unwrap(), bytes);
}
