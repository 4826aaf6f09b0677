//! Return types of functions that only make the work and hand it out: a lock around them would end before it runs.

use syn::visit_mut::{self, VisitMut};
use syn::{Path, Type, TypeImplTrait, TypeParamBound, TypePath, TypeTraitObject};

pub(crate) fn mistake(output: &Type, too_early: &str) -> syn::Error {
    let text = format!(
        "this function returns work that is done later (a future, a stream or an iterator): {too_early}. \
         Do the work in the function, as an `async fn` if it must wait, and return finished values, such as a `Vec`"
    );
    syn::Error::new_spanned(output, text)
}

/// Whether the type names one of these traits or boxes anywhere. The compiler checks a named type by its traits instead.
/// An iterator is refused only by the name of its trait. A named iterator type, such as a range, is accepted: a reader sees
/// that it does no work.
pub(crate) fn is_lazy(output: &Type) -> bool {
    let mut seeker = ReturnSeeker(false);
    seeker.visit_type_mut(&mut output.clone());
    seeker.0
}

const TRAITS: [&str; 8] = [
    "Future",
    "IntoFuture",
    "Stream",
    "TryStream",
    "AsyncIterator",
    "Iterator",
    "DoubleEndedIterator",
    "ExactSizeIterator",
];
const BOXES: [&str; 4] = ["BoxFuture", "LocalBoxFuture", "BoxStream", "LocalBoxStream"];

struct ReturnSeeker(bool);

impl ReturnSeeker {
    fn bounds<'a>(&mut self, bounds: impl IntoIterator<Item = &'a TypeParamBound>) {
        self.0 |= bounds.into_iter().any(|bound| match bound {
            TypeParamBound::Trait(bound) => ends_in(&bound.path, &TRAITS),
            _ => false,
        });
    }
}

impl VisitMut for ReturnSeeker {
    fn visit_type_impl_trait_mut(&mut self, ty: &mut TypeImplTrait) {
        self.bounds(&ty.bounds);
        visit_mut::visit_type_impl_trait_mut(self, ty);
    }

    fn visit_type_trait_object_mut(&mut self, ty: &mut TypeTraitObject) {
        self.bounds(&ty.bounds);
        visit_mut::visit_type_trait_object_mut(self, ty);
    }

    fn visit_type_path_mut(&mut self, ty: &mut TypePath) {
        self.0 |= ends_in(&ty.path, &BOXES);
        visit_mut::visit_type_path_mut(self, ty);
    }
}

fn ends_in(path: &Path, names: &[&str]) -> bool {
    path.segments.last().is_some_and(|last| names.iter().any(|name| last.ident == name))
}
