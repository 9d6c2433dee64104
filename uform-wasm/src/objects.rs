//! Plain objects of JavaScript.

use js_sys::{Array, Object, Reflect};
use uform::{Report, Token};
use wasm_bindgen::JsValue;

/// Sets a property of an object.
pub(crate) fn set(object: &JsValue, name: &str, value: impl Into<JsValue>) {
    // Fails for values that are no objects, or frozen ones, alone.
    let _ = Reflect::set(object, &name.into(), &value.into());
}

/// An object with these properties.
pub(crate) fn object<const N: usize>(properties: [(&str, JsValue); N]) -> JsValue {
    let object = Object::new().into();
    for (name, value) in properties {
        set(&object, name, value);
    }
    object
}

/// What became of each row.
pub(crate) fn reports(reports: &[Report]) -> JsValue {
    let row = |report: &Report| {
        object([
            ("status", report.status.name().into()),
            ("truncated", report.truncated.into()),
            ("tokensFound", (report.tokens_found as f64).into()),
            ("tokensKept", (report.tokens_kept as f64).into()),
        ])
    };
    reports.iter().map(row).collect::<Array>().into()
}

/// The tokens of a text.
pub(crate) fn tokens(tokens: &[Token]) -> JsValue {
    let token = |token: &Token| {
        object([
            ("id", token.id.into()),
            ("special", token.special.into()),
            ("begin", (token.begin as f64).into()),
            ("end", (token.end as f64).into()),
        ])
    };
    tokens.iter().map(token).collect::<Array>().into()
}

/// The text, or `null` where there is none.
pub(crate) fn text_or_null(text: Option<impl ToString>) -> JsValue {
    text.map_or(JsValue::NULL, |text| text.to_string().into())
}
