//! Work in the namespace of one pod, on a thread of its own: what hangs there holds up nobody else.

use tokio::sync::oneshot;

/// Begins. The answer comes when the work ends; the sender is dropped without one if its thread ends abruptly.
///
/// # Errors
/// There is no thread for it.
pub(super) fn begin<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<oneshot::Receiver<T>, String> {
    let (sender, answer) = oneshot::channel();
    // Nobody may wait for the answer any more.
    let run = move || _ = sender.send(work());
    std::thread::Builder::new()
        .name("pod".into())
        .spawn(run)
        .map_err(|e| format!("no thread to look at its namespace: {e}"))?;
    Ok(answer)
}
