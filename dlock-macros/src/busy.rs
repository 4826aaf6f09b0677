//! `on_busy`, with everything checked.

use quote::ToTokens;
use syn::{ExprPath, FnArg, Ident, Pat, Signature};

use crate::values::OnBusy;
use crate::written::{Parsed, value};

/// The behaviour of a call while another owner holds the lock.
pub(crate) enum Busy {
    Error,
    Skip,
    Call { path: Box<ExprPath>, arguments: Vec<Ident> },
}

/// The function that is called instead is given what this one was given.
pub(crate) fn busy(on_busy: Option<Parsed<OnBusy>>, sig: &Signature, mistakes: &mut Vec<syn::Error>) -> Busy {
    let path = match value(on_busy) {
        None | Some(OnBusy::Error) => return Busy::Error,
        Some(OnBusy::Skip) => return Busy::Skip,
        Some(OnBusy::Call(path)) => path,
    };
    let mut arguments = Vec::new();
    for input in &sig.inputs {
        match input {
            FnArg::Receiver(receiver) => arguments.push(Ident::from(receiver.self_token)),
            FnArg::Typed(typed) => match &*typed.pat {
                Pat::Ident(name)
                    if name.subpat.is_none()
                        && name.by_ref.is_none()
                        && typed.attrs.iter().all(|attr| !attr.path().is_ident("cfg")) =>
                {
                    arguments.push(name.ident.clone());
                }
                pattern => {
                    let text = format!(
                        "`on_busy`: `{}` is given the same arguments, so each needs one name: \
                         write `name: Type` here, and take it apart in the body",
                        path.to_token_stream().to_string().replace(' ', "")
                    );
                    mistakes.push(syn::Error::new_spanned(pattern, text));
                }
            },
        }
    }
    Busy::Call { path, arguments }
}
