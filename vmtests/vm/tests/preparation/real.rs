//! The kernels that are in the cache, and the effect of the variants on them.
use std::collections::BTreeSet;
use weir_vm::{Cache, Kernel, Kernels, State};

/// The `depends` of each module, from kernel.json.
fn depends(kernel: &Kernel) -> serde_json::Value {
    let file = kernel.image.with_file_name("kernel.json");
    let text = std::fs::read_to_string(file).unwrap();
    serde_json::from_str::<serde_json::Value>(&text).unwrap()["modules"].clone()
}

/// Fails unless each module comes after its dependencies, so that no omitted module is needed.
fn assert_loadable(kernel: &Kernel) {
    let records = depends(kernel);
    let mut loaded = BTreeSet::new();
    for module in &kernel.modules {
        let record = records
            .as_array()
            .unwrap()
            .iter()
            .find(|r| r["name"] == *module.name);
        for needed in record.unwrap()["depends"].as_array().unwrap() {
            let needed = needed.as_str().unwrap();
            let known = records
                .as_array()
                .unwrap()
                .iter()
                .any(|r| r["name"] == *needed);
            assert!(
                !known || loaded.contains(needed),
                "{}: {} needs {needed}",
                kernel.name,
                module.name
            );
        }
        assert!(
            loaded.insert(module.name.as_str()),
            "{} comes twice",
            module.name
        );
        assert!(module.file.is_file(), "{}", module.file.display());
    }
    assert!(
        kernel
            .left_out
            .iter()
            .all(|name| !loaded.contains(name.as_str()))
    );
}

#[test]
fn every_variant_of_every_fetched_kernel_loads_in_order_without_what_it_leaves_out() {
    let kernels = Kernels::open(&Cache::open(None).unwrap(), None).unwrap();
    let required = std::env::var("VMTESTS_REQUIRE").unwrap_or_default();
    for status in kernels.status() {
        let name = &status.entry.name;
        if status.state != State::Ready {
            assert!(
                !required.split(',').any(|r| r == name),
                "VMTESTS_REQUIRE names {name}, which is not in the cache: weir-vm fetch {name}"
            );
            eprintln!("{name}: not looked at, it is not in the cache (weir-vm fetch {name})");
            continue;
        }
        let plain = kernels.get(name).unwrap();
        assert_loadable(&plain);
        for variant in &kernels.catalogue().variants {
            let kernel = match kernels.get(&format!("{name}-{}", variant.name)) {
                Ok(kernel) => kernel,
                Err(e) => {
                    assert!(
                        !variant.on.contains(name),
                        "kernels.toml has it in the matrix: {e}"
                    );
                    continue;
                }
            };
            assert_loadable(&kernel);
            let matches = |module: &str| {
                variant
                    .without
                    .iter()
                    .any(|pattern| match pattern.strip_suffix('*') {
                        Some(start) => module.starts_with(start),
                        None => module == pattern,
                    })
            };
            assert!(
                !kernel.modules.iter().any(|m| matches(&m.name)),
                "{}",
                kernel.name
            );
            assert_eq!(
                plain.modules.len(),
                kernel.modules.len() + kernel.left_out.len()
            );
            assert!(!kernel.left_out.is_empty() || !kernel.parameters.is_empty());
        }
    }
}
