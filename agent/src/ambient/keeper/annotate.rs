//! Writes the annotation that tells whether a pod is redirected.

use crate::ambient::REDIRECTION;
use crate::ambient::pod::Annotation;
use futures::FutureExt;
use std::sync::Arc;
use std::time::Duration;
use weir_core::api::actions::Actions;
use weir_core::journal::pod;

/// Time limit for one attempt to write an annotation.
const ANNOTATION: Duration = Duration::from_secs(5);

/// Writes an annotation. Returns the resulting resource version of the pod.
pub(in crate::ambient) type Annotate = Arc<
    dyn Fn(
            pod::PodRef,
            Option<Annotation>,
        ) -> futures::future::BoxFuture<'static, Result<String, String>>
        + Send
        + Sync,
>;

/// Returns a writer that uses the API server.
pub(in crate::ambient) fn annotate(actions: Actions) -> Annotate {
    let actions = Arc::new(actions);
    Arc::new(move |pod, value: Option<Annotation>| {
        let actions = Arc::clone(&actions);
        async move {
            let text = value.map(Annotation::text);
            let written = actions.annotate(&pod, REDIRECTION, text);
            // Bounded, because no other job of the pod runs in the meantime.
            let limit = tokio::time::timeout(ANNOTATION, written);
            let late = |_| {
                Err(format!(
                    "the API server does not answer within {ANNOTATION:?}"
                ))
            };
            limit.await.unwrap_or_else(late)
        }
        .boxed()
    })
}
