//! The whole agent with ztunnel as a process: the real one if `ZTUNNEL` names its program, and one that stands for it.

use crate::ambient::{MODE, Scene, has_no_rules, is_captured, labelled, states};
use crate::repair::Sandbox;
use nix::sys::signal::Signal;
use std::fs::File;
use weir_testing::TempDir;
use weir_testing::ztunnel::{Peer, Program, programs, stands_for_ztunnel, until};

/// No test, but a program: see [`programs`].
#[test]
fn the_program_that_stands_for_ztunnel() {
    stands_for_ztunnel();
}

#[test]
fn pods_are_enrolled_by_a_process_of_ztunnel_outlive_the_agent_and_leave() {
    let dir = TempDir::new();
    let name = "ambient_programs::the_program_that_stands_for_ztunnel";
    for program in programs(&dir, name) {
        println!("{}", program.display());
        let (Some(one), Some(two)) = (Sandbox::of("taken"), Sandbox::of("killed")) else {
            return;
        };
        let [of_one, of_two] = [&one, &two].map(|s| File::open(s.netns().path()).unwrap());
        let scene = Scene::new();
        scene.put("taken", &one);
        scene.put("killed", &two);
        let mut agent = scene.start(&[]);
        let Some(ztunnel) = Program::start(&program, scene.socket().as_ref()) else {
            return;
        };
        agent.until("enrolled", || states(&agent, "enrolled") == 2);
        let of = |name: &str| {
            (
                format!("uid-{name}"),
                (format!("shop/{name}"), "web".into()),
            )
        };
        assert_eq!(ztunnel.carried(), [of("taken"), of("killed")].into());
        assert!(ztunnel.is_in("uid-taken", &of_one) && ztunnel.is_in("uid-killed", &of_two));
        until(&ztunnel, "ready", |ztunnel| ztunnel.is_ready());
        // The agent is killed; its successor has the same pods but for one.
        agent.signal(Signal::SIGKILL);
        agent.ended();
        drop(agent);
        until(&ztunnel, "not ready", |ztunnel| !ztunnel.is_ready());
        assert_eq!(ztunnel.carried().len(), 2, "they stay");
        scene
            .server
            .remove(&crate::ambient::running("killed", &two.address));
        let agent = scene.start(&[]);
        until(&ztunnel, "one has left", |ztunnel| {
            ztunnel.is_ready() && ztunnel.is_out_of(&of_two)
        });
        agent.until("enrolled", || states(&agent, "enrolled") == 1);
        assert!(ztunnel.is_in("uid-taken", &of_one) && is_captured(&one));
        // The namespace leaves the mesh.
        scene.server.put(labelled("none"));
        until(&ztunnel, "all have left", |ztunnel| {
            ztunnel.carried().is_empty() && ztunnel.is_out_of(&of_one)
        });
        agent.until(MODE, || has_no_rules(&one));
        assert_eq!(ztunnel.exited(), None, "{}", ztunnel.log());
    }
}
