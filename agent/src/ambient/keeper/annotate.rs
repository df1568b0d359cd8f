//! The annotation that says how a pod is captured.

use crate::ambient::REDIRECTION;
use crate::ambient::pod::Annotation;
use futures::FutureExt;
use std::sync::Arc;
use std::time::Duration;
use weir_core::api::actions::Actions;
use weir_core::journal::pod;

/// How long one attempt to write an annotation may take.
const ANNOTATION: Duration = Duration::from_secs(5);

/// Writes annotations. Returns the version that the pod has then.
pub(in crate::ambient) type Annotate = Arc<
    dyn Fn(
            pod::PodRef,
            Option<Annotation>,
        ) -> futures::future::BoxFuture<'static, Result<String, String>>
        + Send
        + Sync,
>;

/// By way of the API server.
pub(in crate::ambient) fn annotate(actions: Actions) -> Annotate {
    let actions = Arc::new(actions);
    Arc::new(move |pod, value: Option<Annotation>| {
        let actions = Arc::clone(&actions);
        async move {
            let text = value.map(Annotation::text);
            let written = actions.annotate(&pod, REDIRECTION, text);
            // Nothing else is done for the pod meanwhile.
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
