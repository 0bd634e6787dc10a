#![no_main]

use std::sync::{LazyLock, Mutex, PoisonError};

use isle_fuzz::Target;

static TARGET: LazyLock<Mutex<Target>> = LazyLock::new(|| Mutex::new(Target::named("reflections")));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| TARGET.lock().unwrap_or_else(PoisonError::into_inner).run(bytes));
