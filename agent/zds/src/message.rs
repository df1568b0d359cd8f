//! The messages (proto3, package `istio.workload.zds`). Field numbers are those of the schema that Istio and ztunnel share.

use prost::{Enumeration, Message, Oneof};

/// `enum Version`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Version {
    /// `NOT_USED`
    NotUsed = 0,
    /// `V1`
    V1 = 1,
}

/// `ZdsHello`: the first message of ztunnel.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ZdsHello {
    /// `version`
    #[prost(enumeration = "Version", tag = "1")]
    pub version: i32,
}

/// `WorkloadInfo`: who the pod is.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct WorkloadInfo {
    /// `name`
    #[prost(string, tag = "1")]
    pub name: String,
    /// `namespace`
    #[prost(string, tag = "2")]
    pub namespace: String,
    /// `service_account`
    #[prost(string, tag = "3")]
    pub service_account: String,
}

/// `AddWorkload`; the packet carries the descriptor.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AddWorkload {
    /// `uid`
    #[prost(string, tag = "1")]
    pub uid: String,
    /// `workload_info`
    #[prost(message, optional, tag = "2")]
    pub workload_info: Option<WorkloadInfo>,
}

/// `KeepWorkload`: only before [`SnapshotSent`].
#[derive(Clone, PartialEq, Eq, Message)]
pub struct KeepWorkload {
    /// `uid`
    #[prost(string, tag = "1")]
    pub uid: String,
}

/// `DelWorkload`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DelWorkload {
    /// `uid`
    #[prost(string, tag = "2")]
    pub uid: String,
}

/// `SnapshotSent`: only once.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct SnapshotSent {}

/// `WorkloadRequest`: from the agent.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct WorkloadRequest {
    /// `payload`
    #[prost(oneof = "Request", tags = "1, 2, 3, 5")]
    pub payload: Option<Request>,
}

/// The payload of [`WorkloadRequest`].
#[derive(Clone, PartialEq, Eq, Oneof)]
pub enum Request {
    /// `add`
    #[prost(message, tag = "1")]
    Add(AddWorkload),
    /// `del`
    #[prost(message, tag = "2")]
    Del(DelWorkload),
    /// `snapshot_sent`
    #[prost(message, tag = "3")]
    SnapshotSent(SnapshotSent),
    /// `keep`
    #[prost(message, tag = "5")]
    Keep(KeepWorkload),
}

/// `Ack`: an empty error is success.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Ack {
    /// `error`
    #[prost(string, tag = "1")]
    pub error: String,
}

/// `WorkloadResponse`: from ztunnel.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct WorkloadResponse {
    /// `payload`
    #[prost(oneof = "Response", tags = "1")]
    pub payload: Option<Response>,
}

/// The payload of [`WorkloadResponse`].
#[derive(Clone, PartialEq, Eq, Oneof)]
pub enum Response {
    /// `ack`
    #[prost(message, tag = "1")]
    Ack(Ack),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(payload: Request) -> Vec<u8> {
        WorkloadRequest {
            payload: Some(payload),
        }
        .encode_to_vec()
    }

    /// Bytes that ztunnel accepted, or sent.
    #[test]
    fn the_bytes_of_others() {
        let hello = ZdsHello {
            version: Version::V1 as i32,
        };
        assert_eq!(hello.encode_to_vec(), [8, 1]);
        assert_eq!(request(Request::SnapshotSent(SnapshotSent {})), [0x1a, 0]);
        let del = DelWorkload { uid: "u1".into() };
        assert_eq!(request(Request::Del(del)), b"\x12\x04\x12\x02u1");
        let keep = KeepWorkload { uid: "u1".into() };
        assert_eq!(request(Request::Keep(keep)), b"\x2a\x04\x0a\x02u1");
        let info = WorkloadInfo {
            name: "p".into(),
            namespace: "ns".into(),
            service_account: "sa".into(),
        };
        let add = AddWorkload {
            uid: "u1".into(),
            workload_info: Some(info),
        };
        assert_eq!(
            request(Request::Add(add)),
            b"\x0a\x11\x0a\x02u1\x12\x0b\x0a\x01p\x12\x02ns\x1a\x02sa"
        );
        for (bytes, error) in [(&b"\x0a\x00"[..], ""), (b"\x0a\x05\x0a\x03bad", "bad")] {
            let response = WorkloadResponse::decode(bytes).unwrap();
            let Some(Response::Ack(ack)) = response.payload else {
                unreachable!("{bytes:?}")
            };
            assert_eq!(ack.error, error);
        }
    }
}
